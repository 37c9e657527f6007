-- Acquires for several members of one node, one after the other. KEYS: door, counter of tokens.
-- ARGV: node, floor, latest time of servers before, prefix, queue limit (0: they do not wait), then
-- the members. Answers ms left of the holder's lease * 2^20 + position of the first if all are
-- queued behind a lock; the first if none of them is, since they do not wait; `f<length of the
-- queue><first>` if that is full; else in full. Then the outcome is one letter a member, g(ranted),
-- q(ueued), b(usy), f(ull), r(efused), and at the end stands one number for each queued member (its
-- position) and for each member that found the queue full (the length of the queue then).
-- Pays: "One hot lock: 64 tasks of one process" in docs/performance/measured.md.
local call, pcall, door, counter = redis.call, redis.pcall, KEYS[1], KEYS[2]
local queue_limit, draws = tonumber(ARGV[5]), #ARGV - 5
local text, drawn = pcall('GET', door), nil
if type(text) == 'string' then
  local queue, left = door .. ':queue', call('PTTL', door)
  local size = tonumber(pcall('ZCARD', queue))
  local holder, is_waited = text, string.sub(text, 1, 3) == '+~2'
  if string.sub(text, 1, 3) == '-~2' then
    local gone = pcall('ZMSCORE', door .. ':gone', unpack(ARGV, 6))
    is_waited = gone.err == nil
    for _, ends in ipairs(gone) do
      is_waited = is_waited and not ends
    end
  end
  if is_waited then
    holder, left = string.sub(text, 2), left - $margin_ms
  end
  local waits
  --#include queue/waits
  -- A member that holds, or that a run of the same node may have, goes the long way. Those of a run
  -- differ from its first in their numbers only.
  local run = is_waited and string.find(text, '\n', $number_at, true)
  local others, at = 0, run and string.find(text, ' ', run, true)
  --#include queue/others
  local waiting = size and size + others
  waits = waits and (waiting >= queue_limit or waiting + draws <= queue_limit)
  if run and string.sub(text, 2, 1 + $node_colon) ~= string.sub(ARGV[6], 1, $node_colon) then
    run = nil
  end
  local digits = run and string.find(text, ':', 1 + $number_at, true) - 2
  for i = 6, #ARGV do
    local member = ARGV[i]
    if member == holder then
      waits = false
    elseif run and (#member ~= run - 2 or string.find(text, string.sub(member, $number_at, digits), run, true)) then
      waits = false
    end
  end
  if waits and waiting >= queue_limit then
    waits = false
    local is_refused = queue_limit == 0 or pcall('EXISTS', door .. ':swept') == 1
    for _, place in ipairs(is_refused and size > 0 and call('ZMSCORE', queue, unpack(ARGV, 6)) or {}) do
      is_refused = is_refused and not place
    end
    if is_refused then
      return queue_limit == 0 and ARGV[6] or 'f' .. waiting .. ARGV[6]
    end
  end
  local patience = door .. ':patience:' .. ARGV[1]
  local patient = waits and call('PTTL', patience)
  drawn = waits and tonumber(pcall('INCRBY', counter, draws))
  -- Not compared with the floor: they have to be above the places before them only.
  local before = drawn and drawn - draws or 0
  if before >= $lost_counter and drawn < $token_limit then
    local scored = {}
    for i = 1, draws do
      scored[2 * i - 1], scored[2 * i] = string.format('%d', before + i), ARGV[i + 5]
    end
    if call('ZADD', queue, 'NX', unpack(scored)) == draws then
      --#include queue/keep_waiting
      --#include queue/queued
    end
    -- One of them was there already, or is named twice: the long way tells which.
    call('ZREMRANGEBYSCORE', queue, scored[1], scored[2 * draws - 1])
  end
end

--#include queue/put_back

local node, floor, elsewhere, prefix = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
local members = { unpack(ARGV, 6) }

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
reply[#reply + 1] = numbers
return reply
end)()
end)()
