-- KEYS: hold, queue, deadlines, token, alive, arrivals and suspects of each lock.
-- ARGV: node, prefix, then for each lock the number of members, and the members, all of this node;
-- last the latest time.
-- Returns the clock and the number of subscribers to the node's channel, then for each lock: a full
-- reply, or a list with the error for a foreign key. The outcome has a letter for each member:
-- w(aiting), h(olding), g(one).
local call = redis.call
local KEYS = KEYS

--#include clock

local listeners = call('PUBSUB', 'NUMSUB', ARGV[2] .. ':grants:' .. ARGV[1])[2]
local locks, answers, width = KEYS, { clock, listeners }, 7

--#include redisson/common
--#include redisson/several

local function touch(members)
  asked = members[1]
  look()
  if foreign_key then
    return error_for_lock()
  end
  local deadlines = call('ZMSCORE', KEYS[3], unpack(members))
  local lives = call('ZMSCORE', alive, unpack(members))
  assert_writable()
  if not head then
    drop_leftovers()
    deadlines = {}
  end
  if take_back(members, deadlines, lives) then
    deadlines = call('ZMSCORE', KEYS[3], unpack(members))
  end
  local letters = {}
  for i, member in ipairs(members) do
    letters[i] = deadlines[i] and 'w' or member == holder and 'h' or 'g'
  end
  raise(members, deadlines, lives)
  sweep()
  if holder then
    local _, lease = ours(members[1])
    end_hold_after(lease)
  else
    look_at_queue()
    advance()
  end
  return full_reply(table.concat(letters), listeners)
end

-- The index in ARGV of the next lock's member count.
local at = 3
for i = 1, #locks / width do
  select_lock({ unpack(locks, width * (i - 1) + 1, width * i) })
  answers[i + 2] = touch({ unpack(ARGV, at + 1, at + ARGV[at]) })
  at = at + ARGV[at] + 1
end
return answers
