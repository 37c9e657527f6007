-- Renews a hold, and returns its token. An exclusive hold gets a new token, because its first token
-- is not stored. KEYS: lock key, token counter. ARGV: node, token floor, latest time of previous
-- servers, channel prefix, member, lease. Replies `<token><member>` or `<token> <clock><member>` if
-- the member holds, with the ids of a batch in front of the member; otherwise a full reply with
-- h(eld) or n(ot held).
-- Pays: "Hand-off from one process to another" in docs/performance/measured.md.
local call, pcall, lock_key, counter, member = redis.call, redis.pcall, KEYS[1], KEYS[2], ARGV[5]
local text = pcall('GET', lock_key)
local beyond = text == member and 0 or (text == '+' .. member or text == '-' .. member) and $margin_ms
local numbers, drawn, draws = '', nil, 1
if not beyond and type(text) == 'string' and string.sub(text, 2, #member + 2) == member .. '\n' then
  beyond, numbers = $margin_ms, string.sub(text, #member + 2)
  draws = select(2, string.gsub(numbers, '%d+', ''))
end
local left = beyond and call('PTTL', lock_key)
-- If another program has removed the TTL, it gets a new one.
if left and (left > beyond or left == -1) then
  -- Redis refuses INCR when memory is full. Then the long path is taken, whose first write Redis
  -- allows.
  drawn = tonumber(draws == 1 and pcall('INCR', counter) or pcall('INCRBY', counter, draws))
  local ahead = drawn and drawn - ARGV[2] - draws + 1
  -- If a quorum primary's epoch is over, the long path is taken, which refuses.
  if drawn and not ($is_primary and ahead <= 0 and drawn <= $lost_counter) then
    call('PEXPIRE', lock_key, ARGV[6] + beyond)
    if ahead > 0 and drawn < $token_limit then
      return string.format('%d', drawn - draws + 1) .. numbers .. member
    end
    --#include clock
    local token = math.max(ARGV[2], $is_primary and 0 or clock) + 1
    call('SET', counter, string.format('%d', token + draws - 1))
    return string.format('%d', token) .. ' ' .. clock .. numbers .. member
  end
elseif type(text) == 'string' then
  local token = string.match(text, '^[+-]?%*[1-9]%d*:([1-9]%d*)$')
  local ends = token and pcall('ZSCORE', lock_key .. ':holds', member)
  if type(ends) == 'string' then
    --#include clock
    local now, left = math.floor(clock / 1000), call('PTTL', lock_key)
    -- If the lease would end after the lock key expires, or if the token may be from before a
    -- failover, the lock key would have to be written, too, so the long path is taken.
    if tonumber(ends) > now and ARGV[6] + $margin_ms <= left and token - ARGV[3] > 0 then
      -- This changes nothing. Redis refuses it on a replica. After it, Redis allows ZADD when
      -- memory is full.
      call('DEL', lock_key .. ':guard')
      if tonumber(ends) == now + ARGV[6] then
        -- If the lease was renewed in the same millisecond, ZADD writes nothing, and WAIT and
        -- WAITAOF would confirm an older write of their connection. So an expiry is written: both
        -- keys expire together.
        call('PEXPIRE', lock_key .. ':holds', left)
      end
      call('ZADD', lock_key .. ':holds', string.format('%d', now + ARGV[6]), member)
      return token .. ' ' .. clock .. member
    end
  end
end

--#include queue/put_back

local node, token_floor, elsewhere, prefix = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]

-- A separate function, so that the short paths above do not pay for its many variables.
return (function()
--#include queue/state
return (function()
--#include queue/common

local lease = tonumber(ARGV[6])
is_renewal = true
read_and_repair()
if foreign_key then
  return foreign_key
end
--#include queue/renew_hold
if letter == 'h' and whole then
  issue(batch_size())
elseif letter == 'h' then
  issue_shared()
end
if foreign_key then
  return foreign_key
end
write()
if letter == 'h' then
  grants = { member .. batch, lease }
end
return full_reply(letter, 0)
end)()
end)()
