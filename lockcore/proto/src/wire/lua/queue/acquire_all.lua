-- Acquires for several members of one node, one after the other. KEYS: door, counter of tokens.
-- ARGV: node, floor, latest time of servers before, prefix, queue limit (0: they do not wait), then
-- the members. Answers ms left of the holder's lease * 2^20 + position of the first if all are
-- queued behind a lock; else in full. Then the outcome is one letter a member, g(ranted), q(ueued),
-- b(usy), f(ull), r(efused), and at the end stand the positions of those that are queued.
local call, pcall, door, counter = redis.call, redis.pcall, KEYS[1], KEYS[2]
local queue_limit, members = tonumber(ARGV[5]), { unpack(ARGV, 6) }
local text, drawn, draws = pcall('GET', door), nil, #members
if queue_limit > 0 and type(text) == 'string' then
  local queue, left = door .. ':queue', call('PTTL', door)
  local size = tonumber(pcall('ZCARD', queue))
  local is_waited = string.sub(text, 1, 3) == '+~2'
  if is_waited then
    left = left - 60000
  end
  -- A queue behind a door without a mark was not put there by us, or the mark was lost.
  local is_lock = is_waited or size == 0 and string.match(text, '^~2[^:]*():%d+:[1-9]%d*:w[:/]') == 25
  local waits = is_lock and size and size + #members <= queue_limit and left > 0 and left < 4294967296
  local places = {}
  if waits and size > 0 then
    waits = string.match(call('ZRANGE', queue, '0', '0')[1], '^~2[^:]*():%d+:[1-9]%d*:[rw%d]') == 25
    places = call('ZMSCORE', queue, unpack(members))
  end
  -- A member that is there already, that a run of the same node may have, or that is named twice
  -- goes the long way.
  local run = is_waited and string.find(text, '\n', 26, true)
  if run and string.sub(text, 2, 26) ~= string.sub(members[1], 1, 25) then
    run = nil
  end
  local seen = { [is_waited and string.sub(text, 2) or text] = true }
  for i, member in ipairs(members) do
    waits = waits and not places[i] and not seen[member]
    waits = waits and not (run and string.find(text, string.match(member, '^%d+', 26), run, true))
    seen[member] = true
  end
  local patience = door .. ':patience:' .. ARGV[1]
  local patient = waits and call('PTTL', patience)
  drawn = waits and tonumber(pcall('INCRBY', counter, #members))
  -- Not compared with the floor: they have to be above the places before them only.
  local before = drawn and drawn - #members or 0
  if before >= 1000000000000000 and drawn < 9007199254740992 then
    local scored = {}
    for i, member in ipairs(members) do
      scored[2 * i - 1], scored[2 * i] = string.format('%d', before + i), member
    end
    call('ZADD', queue, unpack(scored))
    if patient < 10000 then
      call('PSETEX', patience, '15000', '1')
      call('PEXPIRE', queue, '75000')
    elseif size == 0 then
      call('PEXPIRE', queue, '75000')
    end
    if not is_waited then
      call('PSETEX', door, left + 60000, '+' .. text)
    end
    return left * 1048576 + size
  end
end

--#include queue/put_back

local node, floor, elsewhere, prefix = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]

-- A function of its own, so that the short way does not pay for its many variables.
return (function()
--#include queue/state
return (function()
--#include queue/take

local letters = {}
for i, outcome in ipairs(outcomes) do
  letters[i] = string.sub(outcome, 1, 1)
end
local reply = tell(table.concat(letters), 0)
reply[#reply + 1] = positions
return reply
end)()
end)()
