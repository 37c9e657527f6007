-- KEYS: hold, queue, deadlines, token, tombstone, alive, arrivals and suspects. ARGV: node, prefix,
-- member, lease, 'try' or 'wait', queue limit, latest time.
local call, pcall = redis.call, redis.pcall
local member, lease = ARGV[3], ARGV[4]
local found, time = call('EXISTS', KEYS[1], KEYS[2], KEYS[5]), call('TIME')
local clock = time[1] .. string.sub('00000' .. time[2], -6)
local now_us = tonumber(clock)

-- A short way comes first, because nearly every acquire takes it. Anything that it does not expect
-- is left to the long way, and until then nothing was written.
if found == 0 then
  -- Free, no queue, no tombstone. The answer is the clock, which is also the token, and the
  -- member's number: an answer that went missing on the way must not make this one another
  -- member's. SET comes first: it is refused when memory is full, and then nothing has been
  -- written. A token or a latest time that is ahead of the clock, or no token, is left to the long
  -- way.
  local previous = pcall('GET', KEYS[4])
  local is_token = type(previous) == 'string' and string.match(previous, '^%d+$')
  if (not previous or is_token and tonumber(previous) < now_us) and tonumber(ARGV[7]) < now_us then
    call('SET', KEYS[4], clock)
    call('HSET', KEYS[1], member, '1')
    call('PEXPIRE', KEYS[1], lease)
    return clock .. string.match(member, ':%d+')
  end
end
local now = math.floor(now_us / 1000)

--#include redisson/common

local limit = tonumber(ARGV[6])
look()
local is_gone = look_at_tombstone(KEYS[5])
if foreign_key then
  return foreign_key
end
if is_gone then
  return tell('refused', 0)
end
if holder == member then
  end_hold_after(lease)
  return tell('granted', 0)
end

-- Asked again, after an answer that was lost.
local position = head and call('ZSCORE', KEYS[3], member) and call('LPOS', KEYS[2], member)
if not position then
  -- Changes nothing, but is refused when memory is full, and then nothing has been written.
  call('ZADD', KEYS[3], 'XX', 'GT', '0', '')
end
end_hold_after(lease)
if not holder then
  local outcome = advance()
  if outcome == 'none' then
    grant(member, new_token(), tonumber(lease))
  end
  if holder == member then
    return tell('granted', 0)
  end
  position = position and call('LPOS', KEYS[2], member)
end

local patience = string.format('%.0f', now + 15000)
if position then
  raise({ member }, call('ZMSCORE', KEYS[3], member), call('ZMSCORE', alive, member))
  return tell('queued', position)
end
if ARGV[5] == 'try' then
  return tell('busy', 0)
end
drop_leftovers()
if call('LLEN', KEYS[2]) - call('ZCOUNT', alive, '-inf', now) >= limit then
  return tell('full', 0)
end
sweep()
call('ZADD', KEYS[3], chained_score(), member)
call('ZADD', alive, patience, member)
arrive(member)
local length = call('RPUSH', KEYS[2], member)
keep_queue()
return tell('queued', length - 1)
