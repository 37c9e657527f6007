-- KEYS: hold, queue, deadlines, token. ARGV: node, prefix, member, lease.
local call = redis.call

--#include common

look_at_holder()
if holder ~= ARGV[3] then
  return tell('not_held', 0)
end
local lease = tonumber(ARGV[4])
local value = tonumber(call('GET', KEYS[4]) or '')
call('PEXPIRE', KEYS[1], lease)
left = lease
if value then
  call('PEXPIREAT', KEYS[4], math.max(math.floor(value / 1000) + 60000, now + lease))
end
return tell('held', 0)
