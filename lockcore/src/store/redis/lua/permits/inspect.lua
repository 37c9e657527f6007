-- KEYS: state, holds, queue, deadlines. Answers the token, the server's time, holders with the ends
-- of their leases, what each hold weighs, waiting members, their deadlines.
local call = redis.call

--#include permits/common

look()
if strange then
  return strange
end
local holders, weights = call('ZRANGE', H, 0, -1), {}
local leases = call('ZRANGE', H, 0, -1, 'WITHSCORES')
for from = 1, #holders, 1000 do
  for i, reduced in ipairs(call('HMGET', S, unpack(holders, from, math.min(from + 999, #holders)))) do
    weights[#weights + 1] = weight_of(holders[from + i - 1], reduced)
  end
end
if strange then
  return strange
end
local members, deadlines = call('ZRANGE', Q, 0, -1), {}
for from = 1, #members, 1000 do
  for _, deadline in ipairs(call('ZMSCORE', D, unpack(members, from, math.min(from + 999, #members)))) do
    deadlines[#deadlines + 1] = deadline or '0'
  end
end
return { token or false, clock, leases, weights, members, deadlines }
