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
-- Whom a JVM's clock or arithmetic has thrown out gets its place at the head back, and all others of ours with
-- it, in the order in which they came: were each put back by its own node, the last node to look would be first.
local function is_out(member, score, life)
  return not score and member ~= holder and tonumber(life or 0) > now
end
local has_lost_one
for i, member in ipairs(members) do
  if is_out(member, deadlines[i], lives[i]) then
    has_lost_one = true
    if not call('ZSCORE', arrivals, member) then
      arrive(member)
    end
  end
end
if has_lost_one then
  local listed = {}
  for _, member in ipairs(call('LRANGE', KEYS[2], 0, -1)) do
    listed[member] = true
  end
  local arrived = call('ZRANGEBYSCORE', arrivals, '-inf', '+inf')
  for last = #arrived, 1, -1000 do
    local first = math.max(last - 999, 1)
    local scores = call('ZMSCORE', KEYS[3], unpack(arrived, first, last))
    local until_when = call('ZMSCORE', alive, unpack(arrived, first, last))
    for i = last, first, -1 do
      local member, at = arrived[i], i - first + 1
      if is_out(member, scores[at], until_when[at]) then
        if not listed[member] then
          call('LPUSH', KEYS[2], member)
        end
        call('ZADD', KEYS[3], now + 60000, member)
      end
    end
  end
  deadlines = call('ZMSCORE', KEYS[3], unpack(members))
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
