-- Releases a shared hold. KEYS: lock key, token counter. ARGV: node, token floor, latest time of
-- previous servers, channel prefix, member, weight. Replies 1 if nobody waits; a full reply in
-- other cases.
-- Pays: "10 permits: 4 × 16 tasks, sections of 1 ms" in docs/performance/measured.md.
local call, pcall, lock_key, counter, member = redis.call, redis.pcall, KEYS[1], KEYS[2], ARGV[5]
local text = pcall('GET', lock_key)
local used, token
if type(text) == 'string' then
  used, token = string.match(text, '^%*([1-9]%d*):(%d+)$')
end
if used and #used <= $most_digits and pcall('PTTL', lock_key) > 0 and pcall('EXISTS', lock_key .. ':reduced') == 0 then
  local holds = lock_key .. ':holds'
  if pcall('ZREM', holds, member) == 1 then
    used = used - ARGV[6]
    if used > 0 then
      call('SET', lock_key, '*' .. string.format('%d', used) .. ':' .. token, 'KEEPTTL')
    else
      call('DEL', lock_key)
    end
    return 1
  end
end

local node, token_floor, elsewhere, prefix = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]

-- A separate function, so that the short path above does not pay for its many variables.
return (function()
--#include queue/drop
end)()
