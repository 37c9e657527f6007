-- Renews one hold, and tells its token: a new one for a lock, whose token stands nowhere. KEYS:
-- door, counter of tokens. ARGV: node, floor, latest time of servers before, prefix, member, lease.
-- The outcome is h(eld) or n(ot held).
local call, door, counter = redis.call, KEYS[1], KEYS[2]
local node, floor, elsewhere, prefix = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]

--#include queue/common

local member, lease, letter = ARGV[5], tonumber(ARGV[6]), 'n'
look()
if strange then
  return strange
end
if whole then
  if whole == member then
    whole_left, is_whole_new, letter = lease, true, 'h'
    issue()
  end
elseif tonumber(call('ZSCORE', H, member) or 0) > now then
  held, letter = { text_of(now + lease), member }, 'h'
  keep_until(now + lease)
  token = token or issue()
end
if strange then
  return strange
end
write()
if letter == 'h' then
  grants = { member, lease }
end
return tell(letter, 0)
