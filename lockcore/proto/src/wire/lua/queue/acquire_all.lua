-- Acquires for several members of one node, one after the other. KEYS: lock key, token counter.
-- ARGV: node, token floor, latest time of previous servers, channel prefix, queue limit (0: they do
-- not wait), then the members. Replies ms left of the holder's lease * 2^20 + position of the first
-- member if all were queued behind an exclusive hold; the first member if none was queued, because
-- they do not wait; `f<queue length><first member>` if that queue is full; a full reply in other
-- cases. In a full reply the outcome is a letter per member: g(ranted), q(ueued), b(usy), f(ull),
-- r(efused). A list at the end contains a number for each queued member (its position) and for each
-- member that found the queue full (the queue length at that time).
-- Pays: "One hot lock: 64 tasks of one process" in docs/performance/measured.md.
local call, pcall, lock_key, counter = redis.call, redis.pcall, KEYS[1], KEYS[2]
local queue_limit, draws = tonumber(ARGV[5]), #ARGV - 5
local text, drawn = pcall('GET', lock_key), nil
if type(text) == 'string' then
  local queue, left = lock_key .. ':queue', call('PTTL', lock_key)
  local size = tonumber(pcall('ZCARD', queue))
  local holder, is_waited = text, string.sub(text, 1, 3) == '+~2'
  if string.sub(text, 1, 3) == '-~2' then
    local tombstones = pcall('ZMSCORE', lock_key .. ':gone', unpack(ARGV, 6))
    is_waited = tombstones.err == nil
    for _, ends in ipairs(tombstones) do
      is_waited = is_waited and not ends
    end
  end
  if is_waited then
    holder, left = string.sub(text, 2), left - $margin_ms
  end
  local waits
  --#include queue/waits
  -- A member that holds, or that may be in a batch of the same node, takes the long path. Batch
  -- members differ from the first only in their ids.
  local batch = is_waited and string.find(text, '\n', $number_at, true)
  local others, at = 0, batch and string.find(text, ' ', batch, true)
  --#include queue/others
  local waiting = size and size + others
  waits = waits and (waiting >= queue_limit or waiting + draws <= queue_limit)
  if batch and string.sub(text, 2, 1 + $node_colon) ~= string.sub(ARGV[6], 1, $node_colon) then
    batch = nil
  end
  local digits = batch and string.find(text, ':', 1 + $number_at, true) - 2
  for i = 6, #ARGV do
    local member = ARGV[i]
    if member == holder then
      waits = false
    elseif batch and (#member ~= batch - 2 or string.find(text, string.sub(member, $number_at, digits), batch, true)) then
      waits = false
    end
  end
  if waits and waiting >= queue_limit then
    waits = false
    local is_refused = queue_limit == 0 or pcall('EXISTS', lock_key .. ':swept') == 1
    for _, score in ipairs(is_refused and size > 0 and call('ZMSCORE', queue, unpack(ARGV, 6)) or {}) do
      is_refused = is_refused and not score
    end
    if is_refused then
      return queue_limit == 0 and ARGV[6] or 'f' .. waiting .. ARGV[6]
    end
  end
  local patience = lock_key .. ':patience:' .. ARGV[1]
  local patient = waits and call('PTTL', patience)
  drawn = waits and tonumber(pcall('INCRBY', counter, draws))
  -- The numbers are not compared with the token floor, because they only have to be above earlier
  -- scores.
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
    -- A member was queued already, or is named twice. The long path finds out which.
    call('ZREMRANGEBYSCORE', queue, scored[1], scored[2 * draws - 1])
  end
end

--#include queue/put_back

local node, token_floor, elsewhere, prefix = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
local members = { unpack(ARGV, 6) }

-- A separate function, so that the short path above does not pay for its many variables.
return (function()
--#include queue/state
return (function()
--#include queue/take

local letters = {}
for i, outcome in ipairs(outcomes) do
  letters[i] = string.sub(outcome, 1, 1)
end
local reply = full_reply(table.concat(letters), 0)
reply[#reply + 1] = numbers
return reply
end)()
end)()
