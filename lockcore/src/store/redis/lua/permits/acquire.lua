-- KEYS: state, holds, queue, deadlines, tombstone.
-- ARGV: node, prefix, member, lease, weight, limit, 'try' or 'wait', queue limit, latest times.
local call, pcall = redis.call, redis.pcall
-- No waiters, no tombstone, and it fits: most acquisitions end here. Lapsed holds still count;
-- they are looked at when something does not fit. What this does not expect, such as a part that
-- was lost or a key of another type, is left to the long way; until then nothing was written.
local state = pcall('HMGET', KEYS[1], 'used', 'token', 'era', 'ends')
local used = not state.err and tonumber(state[1] or 0)
if used and used + ARGV[5] <= tonumber(ARGV[6]) then
  local token, era, ends = state[2], state[3], state[4]
  local is_known, others
  if used > 0 then
    local first = pcall('ZRANGE', KEYS[2], '0', '0')[1]
    is_known = token and era and ends and first and string.match(first, '^~2[^:]*():%d+:%d+:[rw%d]') == 25
    others = call('EXISTS', KEYS[3], KEYS[5])
  else
    others = call('EXISTS', KEYS[3], KEYS[5], KEYS[2])
    is_known = ends and state[1] or others == 0 and call('EXISTS', KEYS[1]) == 0
  end
  is_known = is_known and (not era or era == 's' or era == 'x')
  if is_known and others == 0 and string.match((token or '0') .. (ends or '0'), '^%d+$') then
    local time = call('TIME')
    local clock = time[1] .. string.sub('00000' .. time[2], -6)
    local over = math.floor(clock / 1000) + ARGV[4]
    local last = math.max(tonumber(token or 0), tonumber(ARGV[9]))
    -- A token or a latest time that is ahead of the clock is left to the long way. ZADD is the
    -- first write: it is refused when memory is full. A member that is there already goes the long
    -- way, too.
    if last < tonumber(clock) and call('ZADD', KEYS[2], 'NX', over, ARGV[3]) == 1 then
      local is_write, text, is_later = ARGV[5] == '1073741824', ends, false
      if over + 60000 > tonumber(ends or 0) then
        text, is_later = string.format('%.0f', math.ceil((over + 60000) / 30000) * 30000), true
      end
      local sum = used == 0 and ARGV[5] or string.format('%.0f', used + ARGV[5])
      local new_era = is_write and 'x' or 's'
      if is_write or era ~= 's' or not token or tonumber(token) <= tonumber(ARGV[10]) then
        token = clock
        if is_later or era ~= new_era then
          call('HSET', KEYS[1], 'used', sum, 'token', token, 'era', new_era, 'ends', text)
        else
          call('HSET', KEYS[1], 'used', sum, 'token', token)
        end
      elseif is_later then
        call('HSET', KEYS[1], 'used', sum, 'ends', text)
      else
        call('HSET', KEYS[1], 'used', sum)
      end
      if is_later then
        call('PEXPIREAT', KEYS[1], text)
      end
      if is_later or used == 0 then
        call('PEXPIREAT', KEYS[2], text)
      end
      -- With the member's number: an answer that went missing on the way must not make this one
      -- another member's.
      return { clock .. string.match(ARGV[3], ':%d+'), token }
    end
  end
end

--#include permits/common

local member, lease, weight, limit = ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
look()
local is_gone = look_at_tombstone(KEYS[5])
if strange then
  return strange
end
if is_gone then
  return tell('refused', 0)
end
heal()
local over = tonumber(call('ZSCORE', H, member))
local place = call('ZRANK', Q, member)
local deadline = place and call('ZSCORE', D, member)

-- Decides. Returns the outcome, and whether the member is to be appended to the queue.
local function take()
  if not over and not head and used + weight <= limit then
    grant(member, weight, lease)
    grants = { member, lease }
    return 'granted'
  end
  reclaim()
  if over and over > now then
    grants = { member, over - now }
    return 'granted'
  end
  if over and not is_taken[member] then
    -- Its own lapsed hold is one of more than are taken out at a time.
    take_hold(member, call('HGET', S, member))
  end
  local is_end = not head or advance()
  if held_until[member] then
    return 'granted'
  end
  -- The caller stands behind all: none ahead could take it.
  if is_end and used + weight <= limit then
    grant(member, weight, lease)
    grants[#grants + 1] = member
    grants[#grants + 1] = lease
    return 'granted'
  end
  if place and not is_out[member] then
    raise(member, deadline)
    return 'queued'
  end
  if ARGV[7] == 'try' then
    return 'busy'
  end
  local live = head and call('ZCOUNT', D, '(' .. now, '+inf') or 0
  for _, waiting in ipairs(out) do
    -- Granted in this very call: still counted.
    live = held_until[waiting] and live - 1 or live
  end
  if live >= tonumber(ARGV[8]) then
    return 'full'
  end
  if head then
    sweep()
  end
  raise(member)
  return 'queued', true
end

local outcome, is_new = take()
if strange then
  return strange
end
if is_new or held_until[member] then
  -- Changes nothing, but is refused when memory is full, and then nothing has been written.
  call('ZADD', D, 'XX', 'GT', '0', '')
end
write(is_new and member)
return tell(outcome, outcome == 'queued' and call('ZRANK', Q, member) or 0)
