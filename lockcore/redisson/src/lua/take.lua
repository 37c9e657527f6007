-- The full path of an acquire. Requires `members`, and from `ARGV` 'try' or 'wait' as `mode` and
-- the queue limit as `limit`; the tombstones start at the fifth of KEYS. Sets each member's
-- outcome, and its position if queued, or the number of waiters if the queue is full.

asked = members[1]
look()
local has_tombstone = {}
for i in ipairs(members) do
  has_tombstone[i] = look_at_tombstone(KEYS[i + 4])
end
if foreign_key then
  return foreign_key
end
local patience = string.format('%.0f', now + $patience_ms)
local is_checked, has_walked

local function wait(member, position)
  if position then
    raise({ member }, call('ZMSCORE', KEYS[3], member), call('ZMSCORE', alive, member))
    return 'queued', position
  end
  if mode == 'try' then
    return 'busy', 0
  end
  drop_leftovers()
  local waiting = call('LLEN', KEYS[2]) - call('ZCOUNT', alive, '-inf', now)
  if waiting >= limit then
    return 'full', waiting
  end
  sweep()
  call('ZADD', KEYS[3], chained_score(), member)
  call('ZADD', alive, patience, member)
  arrive(member)
  local length = call('RPUSH', KEYS[2], member)
  keep_queue()
  -- From now on they belong together.
  head = head or member
  return 'queued', length - 1
end

local function take(member, lease)
  if holder == member then
    end_hold_after(lease)
    return 'granted', 0
  end
  -- A retry after a lost reply.
  local score = head and call('ZSCORE', KEYS[3], member)
  local position = score and call('LPOS', KEYS[2], member)
  if not position and not is_checked then
    -- Changes nothing, but is refused when memory is full, and then nothing has been written.
    call('ZADD', KEYS[3], 'XX', 'GT', '0', '')
  end
  is_checked = true
  end_hold_after(lease)
  -- A retry after a JVM has removed the member from the queue.
  if not position and take_back({ member }, { score }, { call('ZSCORE', alive, member) }) then
    position = call('LPOS', KEYS[2], member)
  end
  -- A foreign waiter that stopped the walk for a member of this command also stops it for the next.
  if not holder and not has_walked then
    has_walked = true
    if advance() == 'none' then
      grant(member, new_token(), tonumber(lease))
    end
    if holder == member then
      return 'granted', 0
    end
    position = position and call('LPOS', KEYS[2], member)
  end
  return wait(member, position)
end

local outcomes, numbers = {}, {}
for i, member in ipairs(members) do
  if has_tombstone[i] then
    outcomes[i], numbers[i] = 'refused', 0
  else
    local _, lease = ours(member)
    outcomes[i], numbers[i] = take(member, lease)
  end
end
