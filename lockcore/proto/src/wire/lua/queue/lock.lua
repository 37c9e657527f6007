-- Acquires the lock exclusively for one member, the usual case of an acquire. KEYS: lock key, token
-- counter. ARGV: member, token floor; if they are not the default: lease, queue limit (0: does not
-- wait), latest time of previous servers, channel prefix. Replies `<token><member>` if the lock was
-- granted; ms left of the holder's lease * 2^20 + position if the member was queued; `<member>` if
-- it was not queued, because it does not wait; `f<queue length><member>` if the queue is full; a
-- full reply in other cases.
-- Pays: "One hot lock: 4 processes, 16 tasks each" in docs/performance/measured.md.
local call, pcall, lock_key, member = redis.call, redis.pcall, KEYS[1], ARGV[1]
local text, drawn, draws = pcall('GET', lock_key), nil, 1
if not text then
  drawn = tonumber(pcall('INCR', KEYS[2]))
  local ahead = drawn and drawn - ARGV[2]
  if $is_primary and ahead and ahead <= 0 and drawn > $lost_counter then
    -- Another quorum primary is ahead, so the counter continues above the token floor.
    ahead, drawn = 1, ARGV[2] + 1
    call('SET', KEYS[2], string.format('%d', drawn))
  end
  if ahead and ahead > 0 and drawn < $token_limit then
    call('PSETEX', lock_key, ARGV[3] or '$usual_lease_ms', member)
    -- This costs half as much as letting Lua convert the number to text, which would also truncate
    -- it.
    return string.format('%d', drawn) .. member
  end
elseif type(text) == 'string' then
  local queue, left = lock_key .. ':queue', call('PTTL', lock_key)
  local mark = string.sub(text, 1, 1)
  local is_waited = string.sub(text, 2, 3) == '~2'
    and (mark == '+' or mark == '-' and pcall('ZSCORE', lock_key .. ':gone', member) == false)
  local is_other = is_waited and text ~= mark .. member
    or string.match(text, '^~2[^:]*():%d+:[1-9]%d*:w[:/]') == $node_colon and text ~= member
  if is_waited then
    left = left - $margin_ms
  end
  local size = tonumber(pcall('ZCARD', queue))
  -- A queue is only trusted if the lock key has a flag. Otherwise it belongs to another program, or
  -- the flag was lost. A short reply has no room for a position of 2^20.
  local is_usual = size and (is_waited and size < $positions / 2 or size == 0)
  -- A batch of the same node may contain this member, which then takes the long path.
  local batch = is_waited and string.find(text, '\n', $number_at, true)
  if batch and string.sub(text, 2, 1 + $node_colon) == string.sub(member, 1, $node_colon) then
    is_usual = is_usual and not string.find(text, string.match(member, '^%d+', $number_at), batch, true)
  end
  local others, at = 0, batch and string.find(text, ' ', batch, true)
  --#include queue/others
  local is_behind = is_usual and is_other and left > 0 and left < $exact_left_ms
  local queue_limit = tonumber(ARGV[4] or $usual_limit)
  if is_behind and size + others >= queue_limit then
    --#include queue/full
  elseif is_behind then
    local patience = lock_key .. ':patience:' .. string.sub(member, 3, $node_end)
    --#include queue/enqueue
    if is_queued then
      --#include queue/queued
    end
  end
end

--#include queue/put_back

local counter, node, members = KEYS[2], string.sub(member, 3, $node_end), { member }
local token_floor, elsewhere, prefix = tonumber(ARGV[2]), tonumber(ARGV[5] or 0), ARGV[6] or '$usual_prefix'
local queue_limit = tonumber(ARGV[4] or $usual_limit)

-- A separate function, so that the short paths above do not pay for its many variables.
return (function()
--#include queue/state
return (function()
--#include queue/take
return full_reply(outcomes[1], numbers[1] or 0)
end)()
end)()
