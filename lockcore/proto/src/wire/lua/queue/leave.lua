-- Removes members from the queue, or releases their holds. KEYS: lock key, token counter. ARGV:
-- node, token floor, latest time of previous servers, channel prefix, then each member and a sum: 1
-- if a tombstone is needed, and 2 if the member was served in a batch and leaves only the batch.
-- The outcome is a letter per member: l(eft), a(bsent). Replies ms left of the holder's lease, the
-- outcome and the first member if all members waited behind an exclusive hold and all sums are 0;
-- otherwise a full reply.
-- Pays: "Cancel storm" in docs/performance/measured.md.
local call, pcall, lock_key, counter = redis.call, redis.pcall, KEYS[1], KEYS[2]
local node, token_floor, elsewhere, prefix = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]

--#include queue/behind_lock
local is_clear = true
for i = 6, #ARGV, 2 do
  is_clear = is_clear and ARGV[i] == '0'
end
local left, held
if is_clear then
  left, held = left_behind_lock(5, 2)
end
-- A batch that is stored under one of the members gets another name.
if left and string.find(held, '\n', $number_at, true) then
  for i = 5, #ARGV, 2 do
    left = string.sub(held, 2, #ARGV[i] + 1) ~= ARGV[i] and left
  end
end
if left then
  local letters = ''
  for i = 5, #ARGV, 2 do
    letters = letters .. (call('ZREM', lock_key .. ':queue', ARGV[i]) == 1 and 'l' or 'a')
  end
  return string.format('%d', left) .. letters .. ARGV[5]
end

-- A separate function, so that the short path above does not pay for its many variables.
return (function()
--#include queue/state
return (function()
--#include queue/common

local members, was_served = {}, {}
for i = 5, #ARGV, 2 do
  members[#members + 1] = ARGV[i]
  was_served[#members] = ARGV[i + 1] > '1'
  if ARGV[i + 1] % 2 == 1 then
    tombstones[#tombstones + 1] = text_of(now + $tombstone_ms)
    tombstones[#tombstones + 1] = ARGV[i]
  end
end
read_and_repair()
if tombstones[1] then
  read_tombstones()
  has_tombstones = true
end
local asides = read('lock:passed', 'ZMSCORE', aside_keys .. node, unpack(members))
if foreign_key then
  return foreign_key
end
local scores = call('ZMSCORE', Q, unpack(members))
local letters, is_renamed = {}, false
for i, member in ipairs(members) do
  local was_waiting = scores[i] and not is_out[member]
  if was_waiting then
    take_out(member)
  end
  if (asides[i] or apart.scores[member]) and not is_back[member] then
    is_back[member], was_waiting = true, true
    apart.no_longer[#apart.no_longer + 1] = member
  end
  if whole and batch ~= '' and (is_served(member) or whole == member and not was_served[i]) then
    -- The other batch members keep the hold. If it is stored under this member, it is stored under
    -- the next member from now on, because a late copy of this leave could end the hold once it
    -- belongs to another member alone. A served member keeps the name, because the node serves the
    -- others under it.
    local others = string.gsub(batch .. ' ', '([ \n])' .. number_of(member) .. ' ', '%1')
    batch = string.match(others, '^(.-) ?$')
    if batch ~= '\n' then
      was_waiting = true
      if whole == member and not was_served[i] then
        whole = string.sub(member, 1, $node_colon) .. string.match(batch, '%d+') .. string.match(member, '^%d+(:.*)$', $number_at)
        is_renamed = true
      end
    elseif was_served[i] then
      batch = ''
    else
      whole, batch, used, was_waiting = nil, '', 0, true
    end
    letters[i] = was_waiting and 'l' or 'a'
  elseif whole and batch ~= '' or was_served[i] then
    letters[i] = was_waiting and 'l' or 'a'
  else
    letters[i] = (take_any(member) or was_waiting) and 'l' or 'a'
  end
end
if whole and is_renamed then
  issue(batch_size())
  grants = { whole .. batch, whole_left }
end
-- This is done even if others hold the lock, because members behind a removed head may fit.
--#include queue/settle
return full_reply(table.concat(letters), 0)
end)()
end)()
