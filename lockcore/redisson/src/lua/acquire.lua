-- KEYS: hold, queue, deadlines, token, tombstone, alive, arrivals and suspects. ARGV: node, prefix,
-- member, lease, 'try' or 'wait', queue limit, latest time.
local call, pcall = redis.call, redis.pcall
local member, lease = ARGV[3], ARGV[4]
local found = call('EXISTS', KEYS[1], KEYS[2], KEYS[5])
--#include clock

-- A short way comes first, because nearly every acquire takes it. Anything that it does not expect
-- is left to the long way, and until then nothing was written.
if found == 0 then
  -- Free, no queue, no tombstone. The answer is the clock, which is also the token, and the member.
  -- SET comes first: it is refused when memory is full, and then nothing has been written. A token
  -- or a latest time that is ahead of the clock, or no token, is left to the long way.
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

return tell(outcomes[1], numbers[1])
