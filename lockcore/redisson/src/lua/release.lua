-- KEYS: hold, queue, deadlines, token, alive, arrivals and suspects. ARGV: node, prefix, member,
-- latest time. A fast path comes first, because nearly every release takes it. Any unexpected
-- state, such as a key of another type, is left to the full path; until then nothing has been
-- written.
local call, pcall = redis.call, redis.pcall
local head = pcall('LINDEX', KEYS[2], '0')

-- No waiters. The field is the caller's own, whatever else the hash may be. There is nothing to
-- return, not even the time, which would take as long as all the rest.
if not head and pcall('HDEL', KEYS[1], ARGV[3]) == 1 then
  return 1
end

--#include clock

--#include redisson/common

asked = ARGV[3]
look()
if foreign_key then
  return foreign_key
end
local released = 0
if holder == ARGV[3] then
  released = call('HDEL', KEYS[1], holder)
  holder, left = false, 0
end
if not holder then
  advance()
end
return full_reply(released == 1 and 'released' or 'not_held', 0)
