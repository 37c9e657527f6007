-- Renews holds of one node. KEYS: lock key. ARGV: node, token floor, latest time of previous
-- servers, channel prefix, then member and lease of each hold. The outcome is a letter per member:
-- h(eld), n(ot held). Replies the server's time in µs, `h` and the first member if all have shared
-- holds and only expiries are written. This path uses only existing keys, so a slot migration does
-- not stop it while the keys are on one server. Otherwise the reply is a full reply.
local call, pcall, lock_key = redis.call, redis.pcall, KEYS[1]
local text = pcall('GET', lock_key)
if type(text) == 'string' and string.match(text, '^[+-]?%*[1-9]%d*:[1-9]%d*$') then
  --#include clock
  local left, holds = call('PTTL', lock_key), lock_key .. ':holds'
  local now, longest, members, extended = math.floor(clock / 1000), 0, {}, {}
  for i = 5, #ARGV, 2 do
    members[#members + 1] = ARGV[i]
  end
  local leases, is_usual, is_same = pcall('ZMSCORE', holds, unpack(members)), left > 0, true
  for i, member in ipairs(members) do
    local lease = tonumber(ARGV[2 * i + 4])
    is_usual, longest = is_usual and tonumber(leases[i] or 0) > now, math.max(longest, lease)
    is_same = is_same and tonumber(leases[i] or 0) == now + lease
    extended[2 * i - 1], extended[2 * i] = now + lease, member
  end
  if is_usual then
    if longest + $margin_ms > left then
      -- The expiry is rounded up, so that it is rarely written.
      local ends = string.format('%d', math.ceil((now + longest + $margin_ms) / $round_ms) * $round_ms)
      call('PEXPIREAT', lock_key, ends)
      call('PEXPIREAT', holds, ends)
      local reduced = pcall('ZRANGE', lock_key .. ':reduced', 0, 0)[1]
      if reduced and string.sub(reduced, 1, 2) == '~2' then
        call('PEXPIREAT', lock_key .. ':reduced', ends)
      end
    else
      -- This removes nothing. Redis refuses it on a replica. After it, Redis allows ZADD when
      -- memory is full.
      call('ZREM', holds, '')
      if is_same then
        -- This write is for WAIT and WAITAOF, as in confirm.lua.
        call('PEXPIRE', holds, left)
      end
    end
    call('ZADD', holds, unpack(extended))
    return clock .. 'h' .. ARGV[5]
  end
end

-- A renewal draws no number, so it needs no token counter.
local node, token_floor, elsewhere, prefix, counter = ARGV[1], 0, 0, ARGV[4], nil

--#include queue/state
return (function()
--#include queue/common

read_and_repair()
if foreign_key then
  return foreign_key
end
local letters = ''
is_renewal = true
for i = 5, #ARGV, 2 do
  local member, lease = ARGV[i], tonumber(ARGV[i + 1])
  --#include queue/renew_hold
  letters = letters .. letter
end
write()
return full_reply(letters, 0)
end)()
