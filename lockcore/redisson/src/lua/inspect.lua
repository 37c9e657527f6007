-- KEYS: hold, queue, deadlines, token, alive, arrivals and suspects. ARGV: node, prefix, how many
-- waiting members to skip, the maximum to return, latest time. Returns the lock, holder, token, ms
-- left, server time, members, deadlines, and the number of waiters.
local call = redis.call

--#include clock
--#include redisson/common

look()
if foreign_key then
  return foreign_key
end
local from, most = tonumber(ARGV[3]), tonumber(ARGV[4])
local members, deadlines = call('LRANGE', KEYS[2], from, from + most - 1), {}
for first = 1, #members, $most_unpacked do
  local last = math.min(first + $most_unpacked - 1, #members)
  local lives = call('ZMSCORE', alive, unpack(members, first, last))
  for i, deadline in ipairs(call('ZMSCORE', KEYS[3], unpack(members, first, last))) do
    deadline = deadline and lives[i] or deadline
    deadlines[#deadlines + 1] = deadline or '0'
  end
end
-- A hold without an expiry has nothing left.
left = holder and math.max(call('PTTL', KEYS[1]), 0) or 0
return { KEYS[1], holder, previous, left, clock, members, deadlines, call('LLEN', KEYS[2]) }
