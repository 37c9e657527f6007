-- Renews exclusive holds of several locks, including holds that became reads by a downgrade. KEYS:
-- the lock keys. ARGV: for each lock key, the member and the lease. Replies the server's time in
-- µs; a letter per lock key: h(eld), n(ot held), s(trange: data of another program); and the first
-- member.
-- Pays: "10 000 held locks" in docs/performance/measured.md.
local call, pcall = redis.call, redis.pcall
--#include clock
local letters = ''

-- Renews a hold that became a read, whose keys must outlive the lease.
local function renew_part(lock_key, member, lease)
  local holds, reduced, now = lock_key .. ':holds', lock_key .. ':reduced', math.floor(clock / 1000)
  local ends = tonumber(pcall('ZSCORE', holds, member)) or 0
  if ends <= now then
    -- Stops the script if the slot moves, and only one of the keys is on this server.
    call('EXISTS', lock_key, holds)
    return 'n'
  end
  local left, needed = call('PTTL', lock_key), now + lease + $margin_ms
  if needed > now + left then
    needed = string.format('%d', math.ceil(needed / $round_ms) * $round_ms)
    call('PEXPIREAT', lock_key, needed)
    call('PEXPIREAT', holds, needed)
    -- Other holds may be reduced, too, even if this hold's weight was lost.
    local one = pcall('ZRANGE', reduced, 0, 0)[1]
    if one and string.sub(one, 1, 2) == '~2' then
      call('PEXPIREAT', reduced, needed)
    end
  else
    -- This removes nothing. Redis allows ZADD when memory is full, if the script has written
    -- before.
    call('ZREM', holds, '')
    if ends == now + lease then
      -- This write is for WAIT and WAITAOF, as in confirm.lua.
      call('PEXPIRE', holds, left)
    end
  end
  call('ZADD', holds, string.format('%d', now + lease), member)
  return 'h'
end

for i = 1, #KEYS do
  local lock_key, member, lease = KEYS[i], ARGV[2 * i - 1], ARGV[2 * i]
  local held, letter = pcall('GET', lock_key), 'n'
  if held == member then
    call('PEXPIRE', lock_key, lease)
    letter = 'h'
  elseif held == '+' .. member or held == '-' .. member
    or type(held) == 'string' and string.sub(held, 2, #member + 2) == member .. '\n' then
    local left = call('PTTL', lock_key)
    -- If another program has removed the TTL, it gets a new one.
    if left > $margin_ms or left == -1 then
      call('PEXPIRE', lock_key, lease + $margin_ms)
      letter = 'h'
    end
  elseif type(held) == 'string' and string.match(held, '^[+-]?%*%d+:%d+$') then
    letter = renew_part(lock_key, member, lease)
  elseif not held then
    -- This changes nothing. Redis refuses it on a replica, which may lack a hold of its primary.
    call('DEL', lock_key)
  elseif type(held) ~= 'string' or not string.match(held, '^[+-]?~2') then
    letter = 's'
  end
  letters = letters .. letter
end
return clock .. letters .. ARGV[1]
