-- Renews holds of one node. KEYS: door, counter of tokens. ARGV: node, floor, latest time of
-- servers before, prefix, then of each hold member and lease. The outcome is one letter a member:
-- h(eld), n(ot held). Answers the clock alone if all hold parts and nothing but their ends is
-- written.
local call, pcall, door, counter = redis.call, redis.pcall, KEYS[1], KEYS[2]
local text = pcall('GET', door)
if type(text) == 'string' and string.match(text, '^[+-]?%*[1-9]%d*:[1-9]%d*$') then
  local time, left = call('TIME'), call('PTTL', door)
  local clock = time[1] .. string.sub('00000' .. time[2], -6)
  local now, members, extended = math.floor(clock / 1000), {}, {}
  for i = 5, #ARGV, 2 do
    members[#members + 1] = ARGV[i]
  end
  local leases, is_usual = pcall('ZMSCORE', door .. ':holds', unpack(members)), left > 0
  for i, member in ipairs(members) do
    local lease = ARGV[2 * i + 4]
    -- Later than the door lives, its expiry would have to be written, too.
    is_usual = is_usual and tonumber(leases[i] or 0) > now and lease + 60000 <= left
    extended[2 * i - 1], extended[2 * i] = now + lease, member
  end
  if is_usual then
    -- Changes nothing. Redis refuses it on a replica, ZADD after it is allowed when memory is full.
    call('DEL', door .. ':guard')
    call('ZADD', door .. ':holds', unpack(extended))
    return clock
  end
end

local node, floor, elsewhere, prefix = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]

--#include queue/state
return (function()
--#include queue/common

look()
if foreign_key then
  return foreign_key
end
local letters = {}
is_renewal = true
for i = 5, #ARGV, 2 do
  local member, lease, letter = ARGV[i], tonumber(ARGV[i + 1]), 'n'
  if whole then
    if whole == member then
      whole_left, is_whole_new, letter = lease, true, 'h'
    end
  elseif tonumber(call('ZSCORE', H, member) or 0) > now then
    held[#held + 1] = text_of(now + lease)
    held[#held + 1] = member
    keep_until(now + lease)
    letter = 'h'
  end
  letters[#letters + 1] = letter
end
write()
return tell(table.concat(letters), 0)
end)()
