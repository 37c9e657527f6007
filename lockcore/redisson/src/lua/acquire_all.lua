-- Acquires for several members of a node, one after the other. KEYS: hold, queue, deadlines, token,
-- a tombstone for each member, alive, arrivals and suspects. ARGV: node, prefix, 'try' or 'wait',
-- queue limit, the members, latest time. The outcome has a letter for each member: g(ranted),
-- q(ueued), b(usy), f(ull), r(efused). The reply ends with a number for each queued member (its
-- position) and each member that found the queue full (the queue length).
local call = redis.call

--#include clock

--#include redisson/common

local members, mode, limit = { unpack(ARGV, 5, #ARGV - 1) }, ARGV[3], tonumber(ARGV[4])

--#include redisson/take

local letters, listed = {}, {}
for i, outcome in ipairs(outcomes) do
  letters[i] = string.sub(outcome, 1, 1)
  if outcome == 'queued' or outcome == 'full' then
    listed[#listed + 1] = numbers[i]
  end
end
local reply = full_reply(table.concat(letters), 0)
reply[#reply + 1] = listed
return reply
