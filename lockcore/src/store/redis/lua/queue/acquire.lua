-- Acquires a part, or looks again at any request. KEYS: door, counter of tokens. ARGV: node, floor,
-- latest time of servers before, prefix, member, lease, weight, limit, queue limit (0: does not
-- wait). Answers `<token> <clock><member>` if it is granted and there are no waiters; else in full.
local call, pcall, door, counter = redis.call, redis.pcall, KEYS[1], KEYS[2]
local member, lease, queue_limit = ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[9])
local floor, elsewhere = tonumber(ARGV[2]), tonumber(ARGV[3])
local text = pcall('GET', door)
local holds = door .. ':holds'
local used, token, drawn
if not text then
  if ARGV[7] ~= '1073741824' and call('EXISTS', holds, door .. ':queue', door .. ':reduced') == 0 then
    used = 0
  end
elseif type(text) == 'string' then
  used, token = string.match(text, '^%*([1-9]%d*):([1-9]%d*)$')
  used = used and #used <= 16 and #token <= 16 and tonumber(used)
end
-- No mark, so there are no waiters. Lapsed holds still count; they are looked at when something
-- does not fit.
if used and used + ARGV[7] <= tonumber(ARGV[8]) then
  local time = call('TIME')
  local clock = time[1] .. string.sub('00000' .. time[2], -6)
  local over = math.floor(clock / 1000) + lease
  local left = text and call('PTTL', door) or 0
  local is_ours = not text or string.match(call('ZRANGE', holds, '0', '0')[1] or '', '^~2[^:]*():%d+:%d+:[rw%d]') == 25
  local is_old = not token or tonumber(token) <= elsewhere
  drawn = is_old and is_ours and tonumber(pcall('INCR', counter))
  if drawn and drawn > floor and drawn < 9007199254740992 then
    token, is_old = string.format('%d', drawn), false
  end
  -- A member that is there already goes the long way.
  if is_ours and not is_old and left ~= -1 and call('ZADD', holds, 'NX', over, member) == 1 then
    local now_text = '*' .. string.format('%d', used + ARGV[7]) .. ':' .. token
    if over + 60000 > math.floor(clock / 1000) + left then
      local ends = string.format('%d', math.ceil((over + 60000) / 30000) * 30000)
      call('SET', door, now_text, 'PXAT', ends)
      call('PEXPIREAT', holds, ends)
    else
      call('SET', door, now_text, 'KEEPTTL')
    end
    return token .. ' ' .. clock .. member
  end
end

-- A number that was drawn and not used goes back: one that was lost is no measure of the next.
if drawn == 1 then
  redis.call('DEL', KEYS[2])
elseif drawn then
  redis.call('DECR', KEYS[2])
end

local node, prefix = ARGV[1], ARGV[4]

-- A function of its own, so that the short ways do not pay for its many variables.
return (function()
--#include queue/take
end)()
