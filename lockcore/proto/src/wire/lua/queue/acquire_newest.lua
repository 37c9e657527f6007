-- Acquires everything for a member of which only the newest waits: those of its kind that wait
-- leave the queue for it. KEYS: door, counter of tokens. ARGV: node, floor, latest time of servers
-- before, prefix, member, lease, weight, limit, queue limit (0: does not wait). Answers in full.
local call, pcall, door, counter = redis.call, redis.pcall, KEYS[1], KEYS[2]
local node, floor, elsewhere, prefix = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
local members, queue_limit = { ARGV[5] }, tonumber(ARGV[9])

--#include queue/state
return (function()
--#include queue/take
return tell(outcomes[1], numbers[1] or 0)
end)()
