-- KEYS: hold, queue, deadlines, token, tombstone. ARGV: node, prefix, member, lease, 'try' or 'wait', queue limit.
local call = redis.call

-- Free, nobody queued, no tombstone: most acquisitions end here. SET comes first: it is refused when
-- memory is full or the token is of another type, and then nothing has been written.
if call('EXISTS', KEYS[1], KEYS[2], KEYS[5]) == 0 then
  local time = call('TIME')
  local now_us = time[1] * 1000000 + time[2]
  local now, lease = math.floor(now_us / 1000), tonumber(ARGV[4])
  local text = string.format('%.0f', now_us)
  local token = text
  local previous = tonumber(call('SET', KEYS[4], text, 'PXAT', now + math.max(60000, lease), 'GET') or 0)
  if previous and previous >= now_us then
    token = string.format('%.0f', previous + 1)
    call('SET', KEYS[4], token, 'PXAT', math.max(math.floor((previous + 1) / 1000) + 60000, now + lease))
  end
  call('HSET', KEYS[1], ARGV[3], 1)
  call('PEXPIRE', KEYS[1], lease)
  return { 'granted', 0, lease, ARGV[3], token, 0, text, 0 }
end

--#include common

local member, lease, limit = ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[6])
look_at_holder()
look_at_queue()
if call('EXISTS', KEYS[5]) == 1 then
  return tell('refused', 0)
end
end_hold_after(lease)
if holder == member then
  return tell('granted', 0)
end

if not holder then
  local outcome = advance()
  if outcome == 'nobody' then
    grant(member, new_token(), lease)
  end
  if holder == member then
    return tell('granted', 0)
  end
end

local deadline = call('ZSCORE', KEYS[3], member)
if call('EXISTS', KEYS[2]) == 0 then
  -- Without a list, the sorted set is a leftover.
  if deadline or call('ZCARD', KEYS[3]) > 0 then
    call('DEL', KEYS[3])
  end
  deadline = false
end
local position = deadline and call('LPOS', KEYS[2], member)
if position then
  call('ZADD', KEYS[3], 'XX', 'GT', now + 15000, member)
  keep_queue()
  return tell('queued', position)
end

if ARGV[5] == 'try' then
  return tell('busy', 0)
end
if call('ZCOUNT', KEYS[3], '(' .. now, '+inf') >= limit then
  return tell('full', 0)
end
-- Refused when memory is full, and then nothing has been written.
call('ZADD', KEYS[3], now + 15000, member)
local length = call('RPUSH', KEYS[2], member)
length = length - sweep()
keep_queue()
return tell('queued', length - 1)
