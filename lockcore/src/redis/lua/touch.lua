-- KEYS: hold, queue, deadlines, token. ARGV: node, prefix, then members of this node.
-- The outcome is one letter a member: w(aiting), h(olding), g(one). The number is how many listen to the node's channel.
local call = redis.call

--#include common

local members = { unpack(ARGV, 3) }
look_at_holder()
look_at_queue()
local deadlines = call('ZMSCORE', KEYS[3], unpack(members))
assert_writable()
if not head then
  drop_leftovers()
  deadlines = {}
end
local letters, raised = {}, {}
for i, member in ipairs(members) do
  if deadlines[i] then
    letters[i] = 'w'
    raised[#raised + 1] = now + 15000
    raised[#raised + 1] = member
  else
    letters[i] = member == holder and 'h' or 'g'
  end
end
if raised[1] then
  call('ZADD', KEYS[3], 'XX', 'GT', unpack(raised))
  sweep()
  keep_queue()
elseif head then
  sweep()
end
if holder then
  local _, lease = ours(members[1])
  end_hold_after(lease)
else
  look_at_queue()
  advance()
end
return tell(table.concat(letters), call('PUBSUB', 'NUMSUB', prefix .. ':grants:' .. node)[2])
