-- Reads the holders and the queue for operators. KEYS: lock key, token counter. ARGV: the number of
-- waiting members to skip, and the maximum number of them and of holders to return. Replies the
-- lock key; the token of shared holds; the server's time in µs; the holders, each with the end of
-- its lease; each hold's weight; the waiting members; the liveness deadline of each; and the
-- numbers of holds and waiters. Batch members behind the first wait before all others, and their
-- deadline is the lease's end.
local call, lock_key, counter = redis.call, KEYS[1], KEYS[2]
local node, token_floor, elsewhere, prefix = '', 0, 0, ''
local from, most = tonumber(ARGV[1]), tonumber(ARGV[2])

--#include queue/state
return (function()
--#include queue/common

read_and_repair()
if foreign_key then
  return foreign_key
end
local leases, weights, behind = {}, {}, {}
if whole then
  local of, tail = string.sub(whole, 1, $node_colon), string.match(whole, '^%d+(:.*)$', $number_at)
  for number in string.gmatch(batch, '%d+') do
    behind[#behind + 1] = of .. number .. tail
  end
  -- The first member is served, as far as the server knows.
  whole = table.remove(behind, 1) or whole
  leases, weights = { whole, text_of(now + whole_left) }, { ALL }
else
  -- An expired hold stays until its weight is needed, but is not shown.
  leases = call('ZRANGEBYSCORE', H, '(' .. text_of(now), '+inf', 'WITHSCORES', 'LIMIT', 0, most)
  for i = 1, #leases, 2 do
    weights[#weights + 1] = weight_of(leases[i], call('ZSCORE', R, leases[i]))
  end
  if foreign_key then
    return foreign_key
  end
end
local members, deadlines, of_node = { unpack(behind, from + 1, math.min(#behind, from + most)) }, {}, {}
for i = 1, #members do
  deadlines[i] = leases[2]
end
from, most = math.max(from - #behind, 0), most - #members
local queued = most > 0 and call('ZRANGE', Q, from, from + most - 1) or {}
for _, member in ipairs(queued) do
  local of = parse(member)
  if not of then
    return mark_foreign('lock:queue', 'zset') or foreign_key
  end
  if not of_node[of] then
    local left = call('PTTL', patience .. of)
    of_node[of] = left > 0 and text_of(now + left) or '0'
  end
  members[#members + 1], deadlines[#deadlines + 1] = member, of_node[of]
end
size = size + #behind
local holding = whole and 1 or hold_count
return { lock_key, token or false, clock, leases, weights, members, deadlines, holding, size }
end)()
