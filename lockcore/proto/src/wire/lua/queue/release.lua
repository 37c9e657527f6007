-- Releases a shared hold. KEYS: lock key, token counter. ARGV: node, token lower bound, latest time
-- of previous servers, prefix, member, weight. Replies 1 if there are no waiters, otherwise in
-- full.
-- Pays: "10 permits: 4 × 16 tasks, sections of 1 ms" in docs/performance/measured.md.
local call, pcall, door, counter, member = redis.call, redis.pcall, KEYS[1], KEYS[2], ARGV[5]
local text = pcall('GET', door)
local used, token
if type(text) == 'string' then
  used, token = string.match(text, '^%*([1-9]%d*):(%d+)$')
end
if used and #used <= $most_digits and pcall('PTTL', door) > 0 and pcall('EXISTS', door .. ':reduced') == 0 then
  local holds = door .. ':holds'
  if pcall('ZREM', holds, member) == 1 then
    used = used - ARGV[6]
    if used > 0 then
      call('SET', door, '*' .. string.format('%d', used) .. ':' .. token, 'KEEPTTL')
    else
      call('DEL', door)
    end
    return 1
  end
end

local node, floor, elsewhere, prefix = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]

-- A separate function, so that the short paths do not pay for the many variables.
return (function()
--#include queue/drop
end)()
