-- KEYS: hold, queue, deadlines, token, tombstone, alive, arrivals and suspects. ARGV: node, prefix,
-- member, lease, 'try' or 'wait', queue limit, latest time.
local call, pcall = redis.call, redis.pcall
local member, lease = ARGV[3], ARGV[4]
local found = call('EXISTS', KEYS[1], KEYS[2], KEYS[3], KEYS[5], KEYS[6])
--#include clock

-- A fast path comes first, because nearly every acquire takes it. Any unexpected state is left to
-- the full path, and until then nothing has been written.
if found == 0 then
  -- Free, no queue, no scores left by a lost queue, no tombstone, and no waiter that a JVM has
  -- removed. The reply is the clock,
  -- which is also the token, and the member. SET comes first: when memory is full it is refused,
  -- and then nothing has been written. If the token is invalid, or the token or latest time is not
  -- below the clock, the full path decides.
  local now_us, previous = tonumber(clock), pcall('GET', KEYS[4])
  local is_token = type(previous) == 'string' and string.match(previous, '^%d+$')
  if (not previous or is_token and tonumber(previous) < now_us) and tonumber(ARGV[7]) < now_us then
    call('SET', KEYS[4], clock)
    call('HSET', KEYS[1], member, '1')
    call('PEXPIRE', KEYS[1], lease)
    return clock .. member
  end
end

--#include redisson/common

local members, mode, limit = { member }, ARGV[5], tonumber(ARGV[6])

--#include redisson/take

return full_reply(outcomes[1], numbers[1])
