-- Lowers the weight of a hold, and makes that of a run the hold of the member that is served. KEYS:
-- door, counter of tokens. ARGV: node, floor, latest time of servers before, prefix, member,
-- weight, number of the member that is served, then the numbers of those that go back in front of
-- the queue.
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
-- Once the member has left its run, the hold of this name is that of the others.
local is_held = whole == member and (run == '' or is_of_run(ARGV[7])) or over > now
if is_held and run ~= '' then
  -- A member that has left since it was named is in the run no more.
  local back = {}
  for i = 8, #ARGV do
    if ARGV[i] ~= ARGV[7] and is_of_run(ARGV[i]) then
      back[#back + 1] = ARGV[i]
    end
  end
  for _, one in ipairs(in_front(member, back)) do
    apart.returned[#apart.returned + 1] = one
    is_back[one[2]], is_raised, size = true, true, size + 1
  end
  run, is_whole_new = '', true
end
if is_held and whole and weight < ALL then
  -- A write from before that arrives late must not pass beside the members that come in now.
  -- The clock is read once more, after the lease: with its time from before, a server that stood
  -- still in between would end the hold before its guard does.
  time = call('TIME')
  local ends = time[1] * 1000 + math.floor(time[2] / 1000) + whole_left
  whole, run, used, token, hold_count, door_ends = nil, '', weight, issue(), 1, 0
  held, reduced = { text_of(ends), member }, { ARGV[6], member }
  keep_until(ends)
elseif is_held and whole then
  -- The first one stands nowhere.
  issue()
elseif is_held then
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
