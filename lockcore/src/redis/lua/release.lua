-- KEYS: hold, queue, deadlines, token. ARGV: node, prefix, member.
local call = redis.call

-- Nobody waits: most releases end here. Reading the queue first checks its type.
if not call('LINDEX', KEYS[2], 0) and call('HDEL', KEYS[1], ARGV[3]) == 1 then
  local time = call('TIME')
  return { 'released', 0, 0, false, false, 0, string.format('%.0f', time[1] * 1000000 + time[2]), 0 }
end

--#include common

look_at_queue()
local released = call('HDEL', KEYS[1], ARGV[3])
look_at_holder()
if not holder then
  advance()
end
return tell(released == 1 and 'released' or 'not_held', 0)
