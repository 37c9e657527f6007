-- Shared by the scripts that may hand a lock over.
-- KEYS: hold, queue, deadlines, token. ARGV: the calling node, the channel prefix, and what each script adds.

local node, prefix = ARGV[1], ARGV[2]
-- Text is cheaper to hand to Redis than a number.
local time = call('TIME')
local clock = time[1] .. string.sub('00000' .. time[2], -6)
local now_us = tonumber(clock)
local now = math.floor(now_us / 1000)

-- What the reply will say. The token is text, known once it was given out or read.
local holder, left, token = false, 0, false
local foreign, passed_over = 0, 0
-- Read before the first write, which also checks the types: scripts are not rolled back.
local head, head_deadline, previous
-- How many stand in the sorted set without a list; they are leftovers.
local leftovers

-- Node and lease of a member of ours; nothing for a foreign one.
local function ours(member)
  local of, lease = string.match(member, '^~1([^:]*):%d+:(%d+):')
  lease = tonumber(lease)
  if of and #of == 22 and lease > 0 then
    return of, lease
  end
end

-- The last token as a number, if one is remembered that can be followed below 2^53.
local function last_token()
  local number = tonumber(previous or '')
  if number and number >= 0 and number < 9007199254740991 then
    return math.floor(number)
  end
end

-- A token is remembered until the clock alone has passed it, and as long as its hold.
local function token_ends(number, lease)
  return math.max(math.floor(number / 1000) + 60000, now + lease)
end

local function look_at_holder()
  holder = call('HKEYS', KEYS[1])[1] or false
  left = holder and math.max(call('PTTL', KEYS[1]), 1) or 0
end

local function look_at_queue()
  head = call('LINDEX', KEYS[2], 0)
  head_deadline = head and call('ZSCORE', KEYS[3], head)
  leftovers = head and 0 or call('ZCARD', KEYS[3])
  previous = call('GET', KEYS[4])
end

local function drop_leftovers()
  if leftovers > 0 then
    call('DEL', KEYS[3])
  end
end

-- A hold without an end would be for ever.
local function end_hold_after(lease)
  if holder and call('PTTL', KEYS[1]) == -1 then
    call('PEXPIRE', KEYS[1], lease)
    left = tonumber(lease)
  end
end

-- Changes nothing, but Redis refuses it like every write on a replica or without enough replicas.
-- PUBLISH is not refused, so this comes first. Allowed when memory is full.
local function assert_writable()
  call('HDEL', KEYS[1], '')
end

local function new_token()
  local last = last_token() or 0
  return last < now_us and clock or string.format('%.0f', last + 1)
end

local function remember_token(text, lease)
  token = text
  if text == clock then
    call('SET', KEYS[4], text, 'PX', math.max(60000, lease))
  else
    call('SET', KEYS[4], text, 'PXAT', token_ends(text, lease))
  end
end

local function grant(member, text, lease)
  remember_token(text, lease)
  call('HSET', KEYS[1], member, '1')
  call('PEXPIRE', KEYS[1], lease)
  holder, left = member, lease
end

-- List and sorted set live as long as the greatest deadline, and a minute more; a JVM expects no end.
local function keep_queue()
  local last = call('ZREVRANGE', KEYS[3], 0, 0, 'WITHSCORES')
  if not last[1] then
    return
  end
  if ours(last[1]) then
    local ends = last[2] + 60000
    call('PEXPIREAT', KEYS[2], ends)
    call('PEXPIREAT', KEYS[3], ends)
  else
    call('PERSIST', KEYS[2])
    call('PERSIST', KEYS[3])
  end
end

-- Drops a few of those whose deadline has passed, wherever they stand. Returns how many.
local function sweep()
  local dropped = 0
  for _, member in ipairs(call('ZRANGEBYSCORE', KEYS[3], '-inf', now, 'LIMIT', 0, 16)) do
    if ours(member) then
      call('LREM', KEYS[2], 1, member)
      call('ZREM', KEYS[3], member)
      dropped = dropped + 1
    end
  end
  return dropped
end

-- Offers the free lock to a live member. Returns 'granted', 'stopped', or nothing if it was passed over.
local function offer(member, deaf)
  local of, lease = ours(member)
  if not of then
    local base = string.find(KEYS[1], '{', 1, true) and KEYS[1] or '{' .. KEYS[1] .. '}'
    call('PUBLISH', 'redisson_lock__channel:' .. base .. ':' .. member, '0')
    foreign = 1
    return 'stopped'
  end
  local claim = math.min(lease, math.max(math.floor(lease / 3), 2000))
  local text = new_token()
  if of ~= node then
    if deaf[of] then
      return
    end
    local message = 'g ' .. member .. ' ' .. text .. ' ' .. claim
    if call('PUBLISH', prefix .. ':grants:' .. of, message) == 0 then
      deaf[of] = true
      return
    end
  end
  call('LREM', KEYS[2], 1, member)
  call('ZREM', KEYS[3], member)
  grant(member, text, claim)
  return 'granted'
end

-- Walks on behind a head that was passed over.
local function walk(deaf)
  local passed, start, outcome = { head }, 1, nil
  repeat
    local members = call('LRANGE', KEYS[2], start, start + 31)
    local deadlines = members[1] and call('ZMSCORE', KEYS[3], unpack(members)) or {}
    for i, member in ipairs(members) do
      local deadline = tonumber(deadlines[i] or 0)
      if deadline <= now then
        call('LREM', KEYS[2], 1, member)
        call('ZREM', KEYS[3], member)
      else
        outcome = offer(member, deaf)
        if outcome then
          break
        end
        passed[#passed + 1] = member
        start = start + 1
      end
    end
  until outcome or not members[1]
  -- Their next touch restores it; if none comes, they are soon out of the way.
  for first = 1, #passed, 100 do
    local lowered = {}
    for i = first, math.min(first + 99, #passed) do
      lowered[#lowered + 1] = now + 5000
      lowered[#lowered + 1] = passed[i]
    end
    call('ZADD', KEYS[3], 'XX', 'LT', unpack(lowered))
  end
  keep_queue()
  passed_over = #passed
  return outcome or 'nobody'
end

-- Hands the free lock to the first who can take it. Returns 'granted', 'stopped' or 'nobody'.
local function advance()
  assert_writable()
  while head and (not head_deadline or tonumber(head_deadline) <= now) do
    call('LPOP', KEYS[2])
    call('ZREM', KEYS[3], head)
    head = call('LINDEX', KEYS[2], 0)
    head_deadline = head and call('ZSCORE', KEYS[3], head)
  end
  if not head then
    drop_leftovers()
    return 'nobody'
  end
  local deaf = {}
  return offer(head, deaf) or walk(deaf)
end

-- The reply: what the command did, and the state of the lock after it.
local function tell(outcome, number)
  local of = holder and ours(holder)
  if holder and not of then
    foreign = 1
  end
  if of ~= node then
    return { outcome, number, left, false, false, foreign, clock, passed_over }
  end
  if not token then
    previous = call('GET', KEYS[4])
    local last = last_token()
    token = last and string.format('%.0f', last)
    if not token then
      -- An operator deleted it.
      remember_token(new_token(), left)
    end
  end
  return { outcome, number, left, holder, token, foreign, clock, passed_over }
end
