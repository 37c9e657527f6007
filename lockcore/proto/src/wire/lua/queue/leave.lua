-- Takes members out. KEYS: door, counter of tokens. ARGV: node, floor, latest time of servers
-- before, prefix, then for each member itself and '1' if it is ambiguous. The outcome is one letter
-- a member: l(eft), a(bsent).
local call, door, counter = redis.call, KEYS[1], KEYS[2]
local node, floor, elsewhere, prefix = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]

--#include queue/common

local members = {}
for i = 5, #ARGV, 2 do
  members[#members + 1] = ARGV[i]
  if ARGV[i + 1] == '1' then
    gone[#gone + 1] = text_of(now + 60000)
    gone[#gone + 1] = ARGV[i]
  end
end
look()
if gone[1] then
  look_at_gone()
  has_gone = true
end
local asides = read('lock:passed', 'ZMSCORE', passed .. node, unpack(members))
if foreign_key then
  return foreign_key
end
local places = call('ZMSCORE', Q, unpack(members))
local letters = {}
for i, member in ipairs(members) do
  local was_waiting = places[i] and not is_out[member]
  if was_waiting then
    take_out(member)
  end
  if asides[i] and not is_back[member] then
    is_back[member], was_waiting = true, true
    unpassed[#unpassed + 1] = member
  end
  letters[i] = (take_any(member) or was_waiting) and 'l' or 'a'
end
-- Even if others hold: those behind a head that gave up may fit.
hand_on()
if foreign_key then
  return foreign_key
end
write()
return tell(table.concat(letters), 0)
