-- The long way of an acquire. Before it, besides what common needs: member, lease, queue_limit.

--#include queue/state
return (function()
--#include queue/common

look()
local is_gone = has_gone and read('lock:gone', 'ZSCORE', G, member)
if foreign_key then
  return foreign_key
end
if is_gone then
  return tell('refused', 0)
end
local _, _, _, weight, limit = parse(member)
local over = not whole and tonumber(call('ZSCORE', H, member) or nil)
local is_waiting = size > 0 and call('ZSCORE', Q, member)

-- Tells the member what it holds.
local function told_again(ms)
  if not whole and not token then
    token = issue()
  elseif whole then
    issue()
  end
  grants = { member, ms }
  return 'granted'
end

local function grant_lease()
  grant(member, weight, lease, '')
  grants[#grants + 1] = member
  grants[#grants + 1] = lease
  return 'granted'
end

-- Waits. Returns the outcome, and whether the member is to be appended to the queue.
local function wait()
  if is_waiting and not is_out[member] then
    raise_low()
    return 'queued'
  end
  if queue_limit == 0 then
    return 'busy'
  end
  if size >= queue_limit then
    local patient = {}
    for _, waiting in ipairs(call('ZRANGE', Q, 0, #out + most_looked_at - 1)) do
      local of = parse(waiting)
      if of and patient[of] == nil then
        patient[of] = is_patient(of)
      end
      if of and not patient[of] and not is_out[waiting] then
        take_out(waiting)
      end
    end
  end
  if size >= queue_limit then
    return 'full'
  end
  raise_low()
  is_queue_kept = size == 0
  size = size + 1
  return 'queued', true
end

local function take()
  if whole then
    if whole == member then
      return told_again(whole_left)
    end
    return wait()
  end
  if not door_text and weight == ALL then
    -- The door alone counts: without one there is nothing else, unless another program deleted it.
    used, size, has_gone = 0, 0, false
    return grant_lease()
  end
  if not over and size == 0 and used + weight <= limit then
    return grant_lease()
  end
  reclaim()
  if over and over > now then
    return told_again(over - now)
  end
  if over and not is_taken[member] then
    -- Its own lapsed hold is one of more than are taken out at a time.
    take_hold(member, call('ZSCORE', R, member))
  end
  local is_end = advance()
  if is_granted[member] then
    return 'granted'
  end
  -- The caller stands behind all: none ahead could take it.
  if is_end and used + weight <= limit then
    return grant_lease()
  end
  return wait()
end

local outcome, is_new = take()
local place = is_new and next_place()
if foreign_key then
  return foreign_key
end
write(is_new or outcome == 'granted', is_new and member, place)
return tell(outcome, is_new and size - 1 or outcome == 'queued' and call('ZRANK', Q, member) or 0)
end)()
