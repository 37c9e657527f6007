-- Acquires for several members of one node, one after the other. KEYS: door, counter of tokens.
-- ARGV: node, floor, latest time of servers before, prefix, queue limit (0: they do not wait), then
-- the members. The outcome is one letter a member, g(ranted), q(ueued), b(usy), f(ull), r(efused).
-- At the end: the positions of those that are queued.
local call, door, counter = redis.call, KEYS[1], KEYS[2]
local node, floor, elsewhere, prefix = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
local queue_limit, members = tonumber(ARGV[5]), { unpack(ARGV, 6) }

--#include queue/take

local letters = {}
for i, outcome in ipairs(outcomes) do
  letters[i] = string.sub(outcome, 1, 1)
end
local reply = tell(table.concat(letters), 0)
reply[#reply + 1] = positions
return reply
