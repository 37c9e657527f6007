-- Queues the member, with the next number of the token counter as the score. Needs `patience`, the
-- key of the node's liveness deadline.
local patient = call('PTTL', patience)
-- The number is not compared with the token floor, because it only has to be above earlier scores.
drawn = tonumber(pcall('INCR', KEYS[2]))
local score = drawn or 0
local is_score = score > $lost_counter and score < $token_limit
local is_queued = is_score and call('ZADD', queue, 'NX', score, member) == 1
if is_queued then
  --#include queue/keep_waiting
end
