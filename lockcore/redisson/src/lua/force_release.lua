-- KEYS: hold, queue, deadlines, token, alive, arrivals and suspects. ARGV: node, prefix, latest
-- time.
local call = redis.call

--#include clock
--#include redisson/common

look()
if foreign_key then
  return foreign_key
end
local outcome = 'not_held'
if holder then
  outcome = 'released'
  call('DEL', KEYS[1])
  local of = ours(holder)
  if of then
    call('PUBLISH', prefix .. ':grants:' .. of, 'r ' .. holder)
  end
  holder, left = false, 0
end
advance()
return full_reply(outcome, 0)
