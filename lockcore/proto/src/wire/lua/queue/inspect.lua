-- KEYS: door, counter of tokens. Answers the token of parts, the server's time, holders with the
-- ends of their leases, what each hold weighs, waiting members, up to when each is believed alive.
local call, door, counter = redis.call, KEYS[1], KEYS[2]
local node, floor, elsewhere, prefix = '', 0, 0, ''

--#include queue/state
return (function()
--#include queue/common

look()
if foreign_key then
  return foreign_key
end
local leases, weights = {}, {}
if whole then
  -- Of a run, the first that is served as far as is known here.
  local first = string.match(run, '%d+')
  local served = first and string.sub(whole, 1, 25) .. first .. string.match(whole, '^%d+(:.*)$', 26)
  whole = served or whole
  leases, weights = { whole, text_of(now + whole_left) }, { ALL }
else
  leases = call('ZRANGE', H, 0, -1, 'WITHSCORES')
  for i = 1, #leases, 2 do
    weights[#weights + 1] = weight_of(leases[i], call('ZSCORE', R, leases[i]))
  end
end
local members, deadlines, of_node = call('ZRANGE', Q, 0, -1), {}, {}
for i, member in ipairs(members) do
  local of = parse(member)
  if not of then
    return mark_foreign('lock:queue', 'zset') or foreign_key
  end
  if not of_node[of] then
    local left = call('PTTL', patience .. of)
    of_node[of] = left > 0 and text_of(now + left) or '0'
  end
  deadlines[i] = of_node[of]
end
return { token or false, clock, leases, weights, members, deadlines }
end)()
