-- KEYS: hold, queue, deadlines, token, then a tombstone for each ambiguous member, then alive,
-- arrivals and suspects.
-- ARGV: node, prefix, then for each member the member and '1' if it is ambiguous, latest time. The
-- outcome has a letter for each member: l(eft), a(bsent).
local call = redis.call

--#include clock
--#include redisson/common

asked = ARGV[3]
look()
local tombstone = 5
for i = 4, #ARGV - 1, 2 do
  if ARGV[i] == '1' then
    look_at_tombstone(KEYS[tombstone])
    tombstone = tombstone + 1
  end
end
if foreign_key then
  return foreign_key
end
assert_writable()
local letters = {}
tombstone = 5
for i = 3, #ARGV - 1, 2 do
  local member, letter = ARGV[i], 'a'
  local found = call('ZREM', KEYS[3], member)
  found = math.max(found, call('ZREM', alive, member))
  call('ZREM', arrivals, member)
  if found == 1 then
    call('LREM', KEYS[2], 1, member)
    letter = 'l'
  elseif member == holder then
    call('HDEL', KEYS[1], member)
    holder, left = false, 0
    letter = 'l'
  end
  letters[#letters + 1] = letter
  if ARGV[i + 1] == '1' then
    call('SET', KEYS[tombstone], '1', 'PX', $tombstone_ms)
    tombstone = tombstone + 1
  end
end
if not holder then
  look_at_queue()
  advance()
end
return full_reply(table.concat(letters), 0)
