-- Queues the member at the place of the next number. Before it: `patience`, the key of its node.
local patient = call('PTTL', patience)
-- Not compared with the floor: it has to be above the places before it only.
drawn = tonumber(pcall('INCR', KEYS[2]))
local place = drawn or 0
local is_place = place > $lost_counter and place < $token_limit
local is_queued = is_place and call('ZADD', queue, 'NX', place, member) == 1
if is_queued then
  --#include queue/keep_waiting
end
