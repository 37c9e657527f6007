-- KEYS: state, holds, queue, deadlines. ARGV: node, prefix, then for each member of this node
-- itself and its lease, latest times. The outcome is one letter a member: h(eld), n(ot held).
local call, pcall = redis.call, redis.pcall
-- All hold, and nothing but the ends of their leases is to be written: most renewals end here. What
-- this does not expect, such as a part that was lost or a key of another type, is left to the long
-- way; until then nothing was written.
local state = pcall('HMGET', KEYS[1], 'used', 'token', 'era', 'ends')
local used, token, era, ends = state[1], state[2], state[3], state[4]
if used and token and ends and (era == 's' or era == 'x') and math.max(#used, #token, #ends) <= 16
  and string.match(used .. token .. ends, '^%d+$') then
  local time = call('TIME')
  local clock = time[1] .. string.sub('00000' .. time[2], -6)
  local now, members = math.floor(clock / 1000), {}
  for i = 3, #ARGV - 2, 2 do
    members[#members + 1] = ARGV[i]
  end
  -- What they are in is ours, whatever else stands there.
  local leases, extended = pcall('ZMSCORE', KEYS[2], unpack(members)), {}
  local is_usual = true
  for i, member in ipairs(members) do
    local over = now + ARGV[2 * i + 2]
    -- Later than all keys live, their expiries would have to be written, too.
    is_usual = is_usual and tonumber(leases[i] or 0) > now and over + 60000 <= tonumber(ends)
    extended[2 * i - 1], extended[2 * i] = over, member
  end
  if is_usual then
    -- Changes nothing. Redis refuses it on a replica; ZADD after it is allowed when memory is full.
    call('HDEL', KEYS[1], '')
    call('ZADD', KEYS[2], unpack(extended))
    return { clock, token }
  end
end

--#include permits/common

local members = {}
for i = 3, #ARGV - 2, 2 do
  members[#members + 1] = ARGV[i]
end
look_at_state()
look_at_holds()
if strange then
  return strange
end
heal()
local letters = {}
for i, over in ipairs(call('ZMSCORE', H, unpack(members))) do
  if tonumber(over or 0) > now then
    local at = now + ARGV[2 * i + 2]
    letters[i] = 'h'
    held[#held + 1] = at
    held[#held + 1] = members[i]
    keep_until(at)
  else
    letters[i] = 'n'
  end
end
-- The queue was not looked at, and nothing of it is written.
has_deadlines = true
head = true
write()
return tell(table.concat(letters), 0)
