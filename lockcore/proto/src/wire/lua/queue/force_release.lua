-- Ends a member's hold, or all holds, without the holders' consent. KEYS: lock key, token counter.
-- ARGV: node, token floor, latest time of previous servers, channel prefix, member (absent: all
-- holds).
local call, lock_key, counter = redis.call, KEYS[1], KEYS[2]
local node, token_floor, elsewhere, prefix = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]

--#include queue/state
return (function()
--#include queue/common

read_and_repair()
if foreign_key then
  return foreign_key
end
local forced, any = { ARGV[5] }, false
if not ARGV[5] or whole and is_served(ARGV[5]) then
  forced = whole and { whole } or call('ZRANGE', H, 0, -1)
end
local numbers = batch
for _, member in ipairs(forced) do
  if take_any(member) then
    any = true
    put_aside(member, numbers)
    local of, number = parse(member)
    if of then
      add(revoked, of, number)
      -- A node that does not know of the batch yet knows only its members, so all are named.
      for other in string.gmatch(numbers, '%d+') do
        if other ~= number then
          add(revoked, of, other)
        end
      end
    end
  end
end
--#include queue/settle
return full_reply(any and 'released' or 'not_held', 0)
end)()
