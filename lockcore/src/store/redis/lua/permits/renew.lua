-- KEYS: state, holds, queue, deadlines. ARGV: node, prefix, then for each member of this node
-- itself and its lease, latest time. The outcome is one letter a member: h(eld), n(ot held).
local call = redis.call

--#include permits/common

local members = {}
for i = 3, #ARGV - 1, 2 do
  members[#members + 1] = ARGV[i]
end
look_at_state()
look_at_holds()
if strange then
  return strange
end
heal()
local letters = {}
for i, over in ipairs(call('ZMSCORE', H, unpack(members))) do
  if tonumber(over or 0) > now then
    local at = now + ARGV[2 * i + 2]
    letters[i] = 'h'
    held[#held + 1] = at
    held[#held + 1] = members[i]
    keep_until(at)
  else
    letters[i] = 'n'
  end
end
-- The queue was not looked at, and nothing of it is written.
has_deadlines = true
head = true
write()
return tell(table.concat(letters), 0)
