-- Lowers the weight of a hold. KEYS: door, counter of tokens. ARGV: node, floor, latest time of
-- servers before, prefix, member, weight.
local call, door, counter = redis.call, KEYS[1], KEYS[2]
local node, floor, elsewhere, prefix = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]

--#include queue/state
return (function()
--#include queue/common

local member, weight = ARGV[5], tonumber(ARGV[6])
look()
if foreign_key then
  return foreign_key
end
local over = not whole and tonumber(call('ZSCORE', H, member) or 0) or 0
local is_held = whole == member or over > now
if whole == member and weight < ALL then
  -- A write from before that arrives late must not pass beside the members that come in now.
  -- The clock is read once more, after the lease: with its time from before, a server that stood
  -- still in between would end the hold before its guard does.
  time = call('TIME')
  local ends = time[1] * 1000 + math.floor(time[2] / 1000) + whole_left
  whole, run, used, token, hold_count, door_ends = nil, '', weight, issue(), 1, 0
  held, reduced = { text_of(ends), member }, { ARGV[6], member }
  keep_until(ends)
elseif is_held and not whole then
  local old = weight_of(member, call('ZSCORE', R, member))
  if weight < old then
    used, reduced = math.max(used - (old - weight), 0), { ARGV[6], member }
  end
  token = token or issue()
end
if is_held then
  hand_on()
end
if foreign_key then
  return foreign_key
end
write()
return tell(is_held and 'h' or 'n', 0)
end)()
