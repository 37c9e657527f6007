-- Lowers a hold's weight. If the hold belongs to a batch, it becomes the hold of the member that is
-- served now. KEYS: lock key, token counter. ARGV: node, token floor, latest time of previous
-- servers, channel prefix, member, weight, id of the served member, then the ids of members that go
-- back to the queue's front.
local call, lock_key, counter = redis.call, KEYS[1], KEYS[2]
local node, token_floor, elsewhere, prefix = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]

--#include queue/state
return (function()
--#include queue/common

local member, weight = ARGV[5], tonumber(ARGV[6])
read_and_repair()
if foreign_key then
  return foreign_key
end
local over = not whole and tonumber(call('ZSCORE', H, member) or 0) or 0
-- Once the served member has left the batch, the hold under this name belongs to the others.
local is_held = whole == member and (batch == '' or is_of_batch(ARGV[7])) or over > now
if is_held and batch ~= '' then
  -- A member named in the request may have left the batch since.
  local back = {}
  for i = 8, #ARGV do
    if ARGV[i] ~= ARGV[7] and is_of_batch(ARGV[i]) then
      back[#back + 1] = ARGV[i]
    end
  end
  for _, one in ipairs(in_front(member, back)) do
    apart.returned[#apart.returned + 1] = one
    is_back[one[2]], is_raised, size = true, true, size + 1
  end
  batch, is_whole_new = '', true
end
if is_held and whole and weight < ALL then
  -- The hold gets a new token, so that a delayed write with the old token is refused once the
  -- members granted now have written. The clock is read again, because the lease was read after the
  -- first time. With the earlier time, a server that froze in between would end the hold before the
  -- guard does.
  time = call('TIME')
  local ends = time[1] * 1000 + math.floor(time[2] / 1000) + whole_left
  whole, batch, used, token, hold_count, lock_key_ends = nil, '', weight, issue(), 1, 0
  held, reduced = { text_of(ends), member }, { ARGV[6], member }
  keep_until(ends)
elseif is_held and whole then
  -- The hold gets a new token, because the first one is not stored.
  issue()
elseif is_held then
  local old = weight_of(member, call('ZSCORE', R, member))
  if weight < old then
    if used - (old - weight) < hold_count then
      -- The reduced weights were lost, as in `take_hold`.
      used = sum_of_weights()
    end
    used, reduced = used - (old - weight), { ARGV[6], member }
  end
  issue_shared()
end
if is_held then
  hand_on()
end
if foreign_key then
  return foreign_key
end
write()
return full_reply(is_held and 'h' or 'n', 0)
end)()
