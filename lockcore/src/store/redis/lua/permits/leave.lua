-- KEYS: state, holds, queue, deadlines, then a tombstone for each ambiguous member.
-- ARGV: node, prefix, then for each member itself and '1' if it is ambiguous, latest times.
-- The outcome is one letter a member: l(eft), a(bsent).
local call = redis.call

--#include permits/common

local members = {}
for i = 3, #ARGV - 2, 2 do
  members[#members + 1] = ARGV[i]
end
look()
for i = 5, #KEYS do
  look_at_tombstone(KEYS[i])
end
if strange then
  return strange
end
heal()
local places = call('ZMSCORE', Q, unpack(members))
local leases = call('ZMSCORE', H, unpack(members))
local letters = {}
for i, member in ipairs(members) do
  if places[i] and not is_out[member] then
    letters[i] = 'l'
    take_out(member)
  elseif leases[i] and not is_taken[member] then
    letters[i] = 'l'
    take_hold(member, call('HGET', S, member))
  else
    letters[i] = 'a'
  end
end
-- Even if others hold: those behind a head that gave up may fit.
hand_on()
if strange then
  return strange
end
call('HDEL', S, '')
for i = 5, #KEYS do
  call('SET', KEYS[i], '1', 'PXAT', now + 60000)
end
write()
return tell(table.concat(letters), 0)
