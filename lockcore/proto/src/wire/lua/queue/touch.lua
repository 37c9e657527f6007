-- Keeps waiting members alive. KEYS: lock key, token counter. ARGV: node, token floor, latest time
-- of previous servers, channel prefix, then members of this node, if any. Replies ms left of the
-- holder's lease * 2^20 + the number of subscribers of the node's channel if all members wait
-- behind an exclusive hold; otherwise a full reply. In a full reply the outcome is a letter per
-- member before anything was granted: w(aiting), h(olding), s(erved in a batch), d(ropped for a
-- newer member), g(one).
local call, pcall, lock_key, counter = redis.call, redis.pcall, KEYS[1], KEYS[2]
local node, token_floor, elsewhere, prefix = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]

--#include queue/behind_lock
local left = ARGV[5] and left_behind_lock(5, 1)
if left then
  -- Redis allows this first write when memory is full.
  call('PEXPIRE', lock_key .. ':queue', '$waiting_ttl_ms')
  call('PSETEX', lock_key .. ':patience:' .. node, '$patience_ms', '1')
  return left * $positions + call('PUBSUB', 'NUMSUB', prefix .. ':grants:' .. node)[2]
end

-- A separate function, so that the short path above does not pay for its many variables.
return (function()
--#include queue/state
return (function()
--#include queue/common

local members = { unpack(ARGV, 5) }
read_and_repair()
-- A touch without members continues the work that a previous command left.
local asides = members[1] and read('lock:passed', 'ZMSCORE', aside_keys .. node, unpack(members))
if foreign_key then
  return foreign_key
end
local scores = members[1] and call('ZMSCORE', Q, unpack(members))
local leases = members[1] and call('ZMSCORE', H, unpack(members))
local letters = {}
for i, member in ipairs(members) do
  local left = not whole and (leases[i] or now) - now or 0
  local is_holding = whole and is_served(member)
  if is_holding and batch ~= '' then
    letters[i] = 's'
    if not grants[1] then
      issue(batch_size())
      grants = { whole .. batch, whole_left }
    end
  elseif is_holding or left > 0 then
    letters[i] = 'h'
    grants[#grants + 1] = member
    grants[#grants + 1] = is_holding and whole_left or left
    if whole then
      issue()
    else
      issue_shared()
    end
  elseif asides[i] or apart.scores[member] or scores[i] or is_back[member] then
    letters[i] = 'w'
    is_raised = true
    if (asides[i] or apart.scores[member]) and not is_back[member] then
      is_back[member] = true
      apart.returned[#apart.returned + 1] = { apart.scores[member] or asides[i], member }
      apart.no_longer[#apart.no_longer + 1] = member
      size = scores[i] and size or size + 1
    end
  else
    local keeps_newest = string.match(member, '^~2[^:]*():%d+:%d+:w/0:') == $node_colon
    letters[i] = has_tombstones and keeps_newest and call('ZSCORE', G, member) and 'd' or 'g'
  end
end
table.sort(apart.returned, function(a, b)
  return tonumber(a[1]) < tonumber(b[1])
end)
-- Without waiters, handing on would not continue the removal of expired holds.
if not members[1] and size == 0 and not whole then
  reclaim()
end
--#include queue/settle
return full_reply(table.concat(letters), call('PUBSUB', 'NUMSUB', prefix .. ':grants:' .. node)[2])
end)()
end)()
