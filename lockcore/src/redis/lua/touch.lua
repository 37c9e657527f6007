-- KEYS: hold, queue, deadlines, token. ARGV: node, prefix, then members of this node.
-- The outcome is one letter a member: w(aiting), h(olding), g(one). The number is how many listen to the node's channel.
local call = redis.call

--#include common

local members = { unpack(ARGV, 3) }
look()
if strange then
  return strange
end
local deadlines = call('ZMSCORE', KEYS[3], unpack(members))
--#if peers
local lives = call('ZMSCORE', alive, unpack(members))
--#end
assert_writable()
if not head then
  drop_leftovers()
  deadlines = {}
end
--#if peers
-- Whom a JVM's clock or arithmetic has thrown out gets its place at the head back.
for i = #members, 1, -1 do
  if not deadlines[i] and members[i] ~= holder and tonumber(lives[i] or 0) > now then
    if not call('LPOS', KEYS[2], members[i]) then
      call('LPUSH', KEYS[2], members[i])
    end
    deadlines[i] = now
  end
end
local letters = {}
for i, member in ipairs(members) do
  letters[i] = deadlines[i] and 'w' or member == holder and 'h' or 'g'
end
raise(members, deadlines, lives)
sweep()
--#else
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
--#end
if holder then
  local _, lease = ours(members[1])
  end_hold_after(lease)
else
  look_at_queue()
  advance()
end
return tell(table.concat(letters), call('PUBSUB', 'NUMSUB', prefix .. ':grants:' .. node)[2])
