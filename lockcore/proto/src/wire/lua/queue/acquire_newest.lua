-- Acquires the lock exclusively for a member that waits only until a newer member of the same kind
-- is queued. Waiting members of this kind leave the queue for it. KEYS: lock key, token counter.
-- ARGV: node, token floor, latest time of previous servers, channel prefix, member, lease, weight,
-- limit, queue limit (0: does not wait). The reply is a full reply.
local call, pcall, lock_key, counter = redis.call, redis.pcall, KEYS[1], KEYS[2]
local node, token_floor, elsewhere, prefix = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
local members, queue_limit = { ARGV[5] }, tonumber(ARGV[9])

--#include queue/state
return (function()
--#include queue/take
return full_reply(outcomes[1], numbers[1] or 0)
end)()
