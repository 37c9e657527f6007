-- Queues the member with the next number as the score. Expects: `patience`, the key of the node.
local patient = call('PTTL', patience)
-- Not compared with the token floor: it only has to be above earlier scores.
drawn = tonumber(pcall('INCR', KEYS[2]))
local place = drawn or 0
local is_place = place > $lost_counter and place < $token_limit
local is_queued = is_place and call('ZADD', queue, 'NX', place, member) == 1
if is_queued then
  --#include queue/keep_waiting
end
