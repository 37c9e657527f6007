-- Acquires a shared hold for one member, or repeats such an acquire. KEYS: lock key, token counter.
-- ARGV: node, token floor, latest time of previous servers, channel prefix, member,
-- lease, weight, limit, queue limit (0: does not wait). Replies `<token> <clock><member>` if the
-- member was granted and nobody waits; ms left of the holder's lease * 2^20 + position if it was
-- queued behind an exclusive hold; `<member>` if it was not queued there, because it does not wait;
-- `f<queue length><member>` if that queue is full; a full reply in other cases.
-- Pays: "10 permits: 4 × 16 tasks, sections of 1 ms" in docs/performance/measured.md.
local call, pcall, lock_key, counter = redis.call, redis.pcall, KEYS[1], KEYS[2]
local member, lease, queue_limit = ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[9])
local token_floor, elsewhere = tonumber(ARGV[2]), tonumber(ARGV[3])
local text = pcall('GET', lock_key)
local holds, queue = lock_key .. ':holds', lock_key .. ':queue'
local mark, used, token, drawn
local draws = 1
if not text then
  if ARGV[7] ~= '$all' and call('EXISTS', holds, queue, lock_key .. ':reduced') == 0 then
    mark, used = '', 0
  end
elseif type(text) == 'string' then
  mark, used, token = string.match(text, '^(%+?)%*([1-9]%d*):([1-9]%d*)$')
  used = used and #used <= $most_digits and #token <= $most_digits and tonumber(used)
end
-- There is no flag, so nobody waits. Expired holds still count, because they are checked only when
-- something does not fit.
if used and mark == '' and used + ARGV[7] <= tonumber(ARGV[8]) then
  --#include clock
  local over = math.floor(clock / 1000) + lease
  local left = text and call('PTTL', lock_key) or 0
  local is_later = over + $margin_ms > math.floor(clock / 1000) + left
  local is_ours = not text or string.match(call('ZRANGE', holds, '0', '0')[1] or '', '^~2[^:]*():%d+:%d+:[rw%d]') == $node_colon
  is_ours = is_ours and not (text and is_later and call('EXISTS', lock_key .. ':reduced') == 1)
  local is_old = not token or tonumber(token) <= elsewhere
  -- The long path refuses if a quorum primary's epoch is over, although no number is drawn.
  is_old = is_old or $is_primary and (tonumber(pcall('GET', counter)) or 0) <= $lost_counter
  drawn = is_old and is_ours and tonumber(pcall('INCR', counter))
  if drawn and drawn > token_floor and drawn < $token_limit then
    token, is_old = string.format('%d', drawn), false
  end
  -- A member that holds already takes the long path. So does a hold for which the keys must live
  -- longer, if there are reduced weights: this key has to live as long as the others.
  if is_ours and not is_old and left ~= -1 and call('ZADD', holds, 'NX', over, member) == 1 then
    local now_text = '*' .. string.format('%d', used + ARGV[7]) .. ':' .. token
    if is_later then
      local ends = string.format('%d', math.ceil((over + $margin_ms) / $round_ms) * $round_ms)
      call('SET', lock_key, now_text, 'PXAT', ends)
      call('PEXPIREAT', holds, ends)
    else
      call('SET', lock_key, now_text, 'KEEPTTL')
    end
    return token .. ' ' .. clock .. member
  end
elseif type(text) == 'string' then
  local size, left = tonumber(pcall('ZCARD', queue)), call('PTTL', lock_key)
  local has_room = size and (queue_limit == 0 or size < queue_limit)
  -- `waits` is true in the end if the member has to wait: nothing has expired, and the first waiter
  -- does not fit.
  local waits, clock, first_end, is_waited
  -- The number of waiters in a batch: all members but the first.
  local others = 0
  if used and has_room then
    local time = call('TIME')
    clock = time[1] .. string.sub('00000' .. time[2], -6)
    local now = math.floor(clock / 1000)
    local first = pcall('ZRANGE', holds, '0', '0', 'WITHSCORES')
    local is_ours = string.match(first[1] or '', '^~2[^:]*():%d+:%d+:[rw%d]') == $node_colon
    first_end = is_ours and first[2] - now or 0
    -- If there are waiters, the lock key lives at least this much longer than the lease.
    if first_end > 0 and left >= $waiting_ttl_ms and not call('ZSCORE', holds, member) then
      waits = used + ARGV[7] > tonumber(ARGV[8])
      if size > 0 then
        local head = call('ZRANGE', queue, '0', '0')[1]
        local of, at, demand = string.match(head, '^~2([^:]*)():%d+:[1-9]%d*:([w%d/]+):')
        local weight, limit = string.match(demand or '', '^(%d+)/(%d+)$')
        if string.sub(demand or '', 1, 1) == 'w' then
          weight, limit = $all, $all
        end
        local is_first = at == $node_colon and weight and used + weight > tonumber(limit)
        local is_alive = is_first and (of == ARGV[1] or call('EXISTS', lock_key .. ':patience:' .. of) == 1)
        waits = is_alive and (of == ARGV[1] or call('PUBSUB', 'NUMSUB', ARGV[4] .. ':grants:' .. of)[2] > 0)
      end
    end
    -- Other cases take the long path: without a queue the flag is removed, and a member that waits
    -- already is not refused.
    if waits and queue_limit == 0 and (mark == '+') == (size > 0) then
      if size == 0 or not call('ZSCORE', queue, member) then
        return { member, 'busy', 0, first_end, token, clock, 0, 0, {} }
      end
    end
  elseif size and not used then
    is_waited = string.sub(text, 1, 3) == '+~2'
    if is_waited then
      left = left - $margin_ms
    end
    --#include queue/waits
    local batch = is_waited and string.find(text, '\n', $number_at, true)
    local at = batch and string.find(text, ' ', batch, true)
    --#include queue/others
    if waits and size + others >= queue_limit then
      waits = false
      --#include queue/full
    end
  end
  if waits and queue_limit > 0 then
    local patience = lock_key .. ':patience:' .. ARGV[1]
    --#include queue/enqueue
    if is_queued then
      if first_end then
        if mark == '' then
          call('SET', lock_key, '+' .. text, 'KEEPTTL')
        end
        return { member, 'queued', size, first_end, token, clock, 0, 0, {} }
      end
      --#include queue/queued
    end
  end
end

--#include queue/put_back

local node, prefix, members = ARGV[1], ARGV[4], { member }

-- A separate function, so that the short paths above do not pay for its many variables.
return (function()
--#include queue/state
return (function()
--#include queue/take
return full_reply(outcomes[1], numbers[1] or 0)
end)()
end)()
