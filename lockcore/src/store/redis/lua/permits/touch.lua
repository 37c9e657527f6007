-- KEYS: state, holds, queue, deadlines. ARGV: node, prefix, then members of this node, if any, last
-- the latest times. The outcome is one letter a member, w(aiting), h(olding), g(one), as it was
-- before anything was granted. The number is how many listen to the node's channel. At the end: the
-- ms left of those that hold.
local call = redis.call

--#include permits/common

local members = { unpack(ARGV, 3, #ARGV - 2) }
look()
if strange then
  return strange
end
heal()
-- With none of them, the node that reads `more` goes on.
local places = members[1] and call('ZMSCORE', Q, unpack(members))
local deadlines = members[1] and call('ZMSCORE', D, unpack(members))
local leases = members[1] and call('ZMSCORE', H, unpack(members))
local letters, lefts = {}, {}
for i, member in ipairs(members) do
  if places[i] then
    letters[i] = 'w'
    raise(member, deadlines[i])
  elseif tonumber(leases[i] or 0) > now then
    letters[i] = 'h'
    lefts[#lefts + 1] = leases[i] - now
  else
    letters[i] = 'g'
  end
end
if head then
  sweep()
end
hand_on()
if strange then
  return strange
end
write()
local reply = tell(table.concat(letters), call('PUBSUB', 'NUMSUB', prefix .. ':grants:' .. node)[2])
reply[#reply + 1] = lefts
return reply
