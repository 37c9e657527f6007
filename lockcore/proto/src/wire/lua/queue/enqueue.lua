-- Queues the member with the next number as the score. Expects: `patience`, the key of the node.
local patient = call('PTTL', patience)
-- Not compared with the token floor: it only has to be above earlier scores.
drawn = tonumber(pcall('INCR', KEYS[2]))
local score = drawn or 0
local is_score = score > $lost_counter and score < $token_limit
local is_queued = is_score and call('ZADD', queue, 'NX', score, member) == 1
if is_queued then
  --#include queue/keep_waiting
end
