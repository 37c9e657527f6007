-- KEYS: hold, queue, deadlines, token, tombstone, and for peers alive, arrivals and suspects. ARGV:
-- node, prefix, member, lease, 'try' or 'wait', queue limit, latest time.
local call, pcall = redis.call, redis.pcall
local member, lease = ARGV[3], ARGV[4]
local found, time = call('EXISTS', KEYS[1], KEYS[2], KEYS[5]), call('TIME')
local clock = time[1] .. string.sub('00000' .. time[2], -6)
local now_us = tonumber(clock)

-- Two short ways come first, because they are what nearly every acquisition is. What they do not
-- expect is left to the long way, and until then nothing was written.
if found == 0 then
  -- Free, no queue, no tombstone. The answer is the clock, which is also the token, and the
  -- member's number: an answer that went missing on the way must not make this one another
  -- member's. SET comes first: it is refused when memory is full, and then nothing has been
  -- written. A token or a latest time that is ahead of the clock, or no token, is left to the long
  -- way.
  local previous = pcall('GET', KEYS[4])
  local is_token = type(previous) == 'string' and string.match(previous, '^%d+$')
  if (not previous or is_token and tonumber(previous) < now_us) and tonumber(ARGV[7]) < now_us then
--#if peers
    call('SET', KEYS[4], clock)
--#else
    call('SET', KEYS[4], clock, 'PX', tonumber(lease) > 60000 and lease or '60000')
--#end
    call('HSET', KEYS[1], member, '1')
    call('PEXPIRE', KEYS[1], lease)
    return clock .. string.match(member, ':%d+')
  end
end
local now = math.floor(now_us / 1000)

--#if peers
--#else
if found < 3 then
  -- One of ours holds. Either none waits, or list and sorted set begin as they should; so those
  -- are all that were found, and there is no tombstone.
  local fields, left = pcall('HRANDFIELD', KEYS[1], '2', 'WITHVALUES'), call('PTTL', KEYS[1])
  local holder, number = fields[1], false
  local of = holder and string.match(holder, '^~1([^:]*):%d+:[1-9]%d*:')
  local is_known = of and #of == 22 and fields[2] == '1' and not fields[3] and left > 0 and holder ~= member
  if is_known and of == ARGV[1] then
    -- Its node is told, until it knows.
    number = pcall('GET', KEYS[4])
    is_known = type(number) == 'string' and string.find(number, '^[1-9]%d*$') and tonumber(number) < 9007199254740991
  end
  if is_known and found == 1 then
    is_known = call('EXISTS', KEYS[3]) == 0
  elseif is_known then
    local head = pcall('LINDEX', KEYS[2], '0')
    local first = type(head) == 'string' and string.match(head, '^~1([^:]*):%d+:[1-9]%d*:')
    local lowest = pcall('ZREVRANGE', KEYS[3], '-1', '-1', 'WITHSCORES')
    -- No deadline has passed, so there is nothing to sweep.
    is_known = first and #first == 22 and lowest[1] == head and tonumber(lowest[2]) > now
  end
  if is_known and ARGV[5] == 'try' then
    if found == 1 or not call('ZSCORE', KEYS[3], member) then
      return { clock .. string.match(member, ':%d+'), false, left, number and holder, number }
    end
  elseif is_known and (found == 1 or call('PTTL', KEYS[2]) >= 60000)
    -- Refused when memory is full, before anything has been written.
    and call('ZADD', KEYS[3], 'NX', string.format('%d', now + 15000), member) == 1 then
    local length = call('RPUSH', KEYS[2], member)
    if length <= tonumber(ARGV[6]) then
      if found == 1 then
        local ends = string.format('%d', now + 75000)
        call('PEXPIREAT', KEYS[2], ends)
        call('PEXPIREAT', KEYS[3], ends)
      end
      return { clock .. string.match(member, ':%d+'), length - 1, left, number and holder, number }
    end
    -- Perhaps too many, so they are counted.
    call('LREM', KEYS[2], '-1', member)
    call('ZREM', KEYS[3], member)
  end
end
--#end

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
if call('ZCOUNT', KEYS[3], '(' .. now, '+inf') >= limit and call('LINDEX', KEYS[2], limit - 1) then
  return tell('full', 0)
end
call('ZADD', KEYS[3], patience, member)
local length = call('RPUSH', KEYS[2], member) - sweep()
-- Touches write the expiry again while others wait: behind them it is only written if less than a
-- minute is left.
if length > 1 and call('ZCARD', KEYS[3]) > 1 and call('PTTL', KEYS[2]) >= 60000 then
  return tell('queued', length - 1)
end
--#end
keep_queue()
return tell('queued', length - 1)
