-- KEYS: hold, queue, deadlines, token. ARGV: node, prefix, member, lease.
local call = redis.call

--#include common

look_at_holder()
look_at_token()
if strange then
  return strange
end
if holder ~= ARGV[3] then
  return tell('not_held', 0)
end
call('PEXPIRE', KEYS[1], ARGV[4])
left = tonumber(ARGV[4])
--#if peers
--#else
local last = last_token()
if last then
  call('PEXPIREAT', KEYS[4], token_ends(last, left))
end
--#end
return tell('held', 0)
