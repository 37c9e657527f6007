-- KEYS: state, holds, queue, deadlines. ARGV: node, prefix, member, weight, latest times.
local call = redis.call

--#include permits/common

local member, weight = ARGV[3], tonumber(ARGV[4])
look()
if strange then
  return strange
end
heal()
local over, reduced = tonumber(call('ZSCORE', H, member) or 0), nil
local is_held = over > now
if is_held then
  local old = weight_of(member, call('HGET', S, member))
  if weight < old then
    reduced, is_changed = true, true
    used = math.max(used - (old - weight), 0)
    if old == ALL then
      -- What it wrote before, and arrives late, must not pass beside those who come in now.
      new_token()
      era = 's'
    end
  end
  hand_on()
end
if strange then
  return strange
end
-- The first write is allowed when memory is full, and those after it are, too.
call('HDEL', S, '')
if reduced then
  call('HSET', S, member, ARGV[4])
end
write()
return tell(is_held and 'h' or 'n', 0)
