-- KEYS: state, holds, queue, deadlines. ARGV: node, prefix, whose hold (all, if it is not
-- said), latest times.
local call = redis.call

--#include permits/common

look()
if strange then
  return strange
end
heal()
local forced = { ARGV[3] }
if not ARGV[5] then
  forced = call('ZRANGE', H, 0, -1)
elseif not call('ZSCORE', H, ARGV[3]) then
  forced = {}
end
for _, member in ipairs(forced) do
  take_hold(member, call('HGET', S, member))
  local of, number = parse(member)
  if of then
    add(revoked, revoked_order, of, number)
  end
end
hand_on()
if strange then
  return strange
end
write()
return tell(forced[1] and 'released' or 'not_held', 0)
