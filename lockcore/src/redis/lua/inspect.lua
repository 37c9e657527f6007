-- KEYS: hold, queue, deadlines, token. Answers holder, token, ms left, the server's time, members, deadlines.
local call = redis.call
local time = call('TIME')
local members, deadlines = call('LRANGE', KEYS[2], 0, -1), {}
for first = 1, #members, 1000 do
  local last = math.min(first + 999, #members)
--#if peers
  local lives = call('ZMSCORE', KEYS[5], unpack(members, first, last))
--#end
  for i, deadline in ipairs(call('ZMSCORE', KEYS[3], unpack(members, first, last))) do
--#if peers
    deadline = deadline and lives[i] or deadline
--#end
    deadlines[#deadlines + 1] = deadline or '0'
  end
end
return {
  call('HKEYS', KEYS[1])[1] or false,
  call('GET', KEYS[4]),
  math.max(call('PTTL', KEYS[1]), 0),
  string.format('%.0f', time[1] * 1000000 + time[2]),
  members,
  deadlines,
}
