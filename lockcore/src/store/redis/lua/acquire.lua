-- KEYS: hold, queue, deadlines, token, tombstone, and for peers alive, arrivals and suspects. ARGV: node, prefix, member, lease, 'try' or 'wait', queue limit.
local call = redis.call
local member, lease = ARGV[3], ARGV[4]

-- Free, nobody queued, no tombstone: most acquisitions end here, with no more than the clock, which is
-- also the token, for an answer. SET comes first: it is refused when memory is full, and then nothing has
-- been written. A token that is ahead of the clock, or no token, is left to the long way.
if call('EXISTS', KEYS[1], KEYS[2], KEYS[5]) == 0 then
  local previous, time = redis.pcall('GET', KEYS[4]), call('TIME')
  local clock = time[1] .. string.sub('00000' .. time[2], -6)
  local is_token = type(previous) == 'string' and string.match(previous, '^%d+$')
  if not previous or is_token and tonumber(previous) < tonumber(clock) then
--#if peers
    call('SET', KEYS[4], clock)
--#else
    call('SET', KEYS[4], clock, 'PX', tonumber(lease) > 60000 and lease or '60000')
--#end
    call('HSET', KEYS[1], member, '1')
    call('PEXPIRE', KEYS[1], lease)
    return clock
  end
end

--#include clock
--#include common

local limit = tonumber(ARGV[6])
look()
local is_gone = look_at_tombstone(KEYS[5])
if strange then
  return strange
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
  if outcome == 'nobody' then
    grant(member, new_token(), tonumber(lease))
  end
  if holder == member then
    return tell('granted', 0)
  end
  position = position and call('LPOS', KEYS[2], member)
end

local patience = string.format('%.0f', now + 15000)
if position then
--#if peers
  raise({ member }, call('ZMSCORE', KEYS[3], member), call('ZMSCORE', alive, member))
--#else
  call('ZADD', KEYS[3], 'XX', 'GT', patience, member)
  keep_queue()
--#end
  return tell('queued', position)
end
if ARGV[5] == 'try' then
  return tell('busy', 0)
end
drop_leftovers()
--#if peers
if call('LLEN', KEYS[2]) - call('ZCOUNT', alive, '-inf', now) >= limit then
  return tell('full', 0)
end
sweep()
call('ZADD', KEYS[3], chained_score(), member)
call('ZADD', alive, patience, member)
arrive(member)
local length = call('RPUSH', KEYS[2], member)
--#else
if call('ZCOUNT', KEYS[3], '(' .. now, '+inf') >= limit then
  return tell('full', 0)
end
call('ZADD', KEYS[3], patience, member)
local length = call('RPUSH', KEYS[2], member) - sweep()
--#end
keep_queue()
return tell('queued', length - 1)
