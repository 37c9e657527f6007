-- KEYS: hold, queue, deadlines, token, tombstone, and for peers alive and suspect. ARGV: node, prefix, member, lease, 'try' or 'wait', queue limit.
local call = redis.call
local member, lease = ARGV[3], ARGV[4]

-- Free, nobody queued, no tombstone: most acquisitions end here, with no more than the clock, which is
-- also the token, for an answer. SET comes first: it is refused when memory is full or the token is
-- of another type, and then nothing has been written.
if call('EXISTS', KEYS[1], KEYS[2], KEYS[5]) == 0 then
  local time = call('TIME')
  local clock = time[1] .. string.sub('00000' .. time[2], -6)
--#if peers
  local previous = call('SET', KEYS[4], clock, 'GET')
--#else
  local memory = tonumber(lease) > 60000 and lease or '60000'
  local previous = call('SET', KEYS[4], clock, 'PX', memory, 'GET')
--#end
  if not previous or (tonumber(previous) or 0) < tonumber(clock) then
    call('HSET', KEYS[1], member, '1')
    call('PEXPIRE', KEYS[1], lease)
    return clock
  end
  -- The last token is ahead of the clock, which was set back: back to what it was, and the long way.
  call('SET', KEYS[4], previous)
end

--#include common

local limit = tonumber(ARGV[6])
look_at_holder()
look_at_queue()
if call('EXISTS', KEYS[5]) == 1 then
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
