-- Shared by the scripts that may hand off a lock. KEYS: hold, queue, deadlines, token,
-- script-specific keys, and last alive, arrivals and suspects. ARGV: the calling node, the channel
-- prefix, script-specific arguments, and last the latest server time seen by the node: the clock of
-- a replaced server may have been ahead of this server's clock. Requires `clock` before it.

local node, prefix = ARGV[1], ARGV[2]
local now_us = tonumber(clock)
local now = math.floor(now_us / 1000)
-- A member is a waiter or holder: of lockcore, or foreign, a JVM thread. Redisson's sorted set has
-- the scores used by JVMs. Separate keys have the liveness deadlines of lockcore members, the order
-- of arrival of the same members, and the foreign members without a subscription.
local alive, arrivals, suspects = KEYS[#KEYS - 2], KEYS[#KEYS - 1], KEYS[#KEYS]
local is_suspicious
-- The foreign members that are dead, as a set, once a command has searched for them; else nil.
local gone

-- The subject of the reply: the first member, or the lock alone.
local asked = KEYS[1]
-- The content of the reply. The token is a string, set once issued or read.
local holder, left, token = false, 0, false
local skipped = 0
-- Read before the first write: scripts are not rolled back.
local head, previous
-- Whether the sorted set exists without a list: then it is a leftover.
local leftovers
-- The error reply if a key with the name of a lock's key belongs to another program. Then nothing
-- is written.
local foreign_key

-- Returns node and lease of a lockcore member; nothing for a foreign member.
local function ours(member)
  local of, lease = string.match(member, '^~1([^:]*):%d+:(%d+):')
  lease = tonumber(lease)
  if of and #of == $node_bytes and lease > 0 then
    return of, lease
  end
end

-- Whether a text is a member: of lockcore, or foreign, which is a UUID and a thread id.
-- Applications may choose any integer as a thread id.
local function is_member(text)
  return ours(text)
    or string.match(text, '^%x%x%x%x%x%x%x%x%-%x%x%x%x%-%x%x%x%x%-%x%x%x%x%-%x%x%x%x%x%x%x%x%x%x%x%x:%-?%d+$')
end

--#include foreign_key

-- Returns the last token as a number, if stored and small enough for a successor below 2^53.
local function last_token()
  local number = tonumber(previous or '')
  if number and number >= 0 and number < $greatest_token then
    return math.floor(number)
  end
end

-- A hold is a hash with a single field: a member and the hold count. An application's hash is not.
local function look_at_holder()
  local fields = read('hold', 'HRANDFIELD', KEYS[1], '2', 'WITHVALUES') or {}
  local member, count = fields[1], fields[2]
  if member and (fields[3] or #count > $most_count_digits or not string.match(count, '^%d+$') or not is_member(member)) then
    mark_foreign('hold', 'hash')
  elseif member then
    holder, left = member, math.max(call('PTTL', KEYS[1]), 1)
  end
end

local function look_at_token()
  previous = read('token', 'GET', KEYS[4])
  if previous and not string.match(previous, '^%d+$') then
    mark_foreign('token', 'string')
  end
end

-- Returns nothing if the member was not given up.
local function look_at_tombstone(key)
  local mark = read('tombstone', 'GET', key)
  if mark and mark ~= '1' then
    mark_foreign('tombstone', 'string')
  end
  return mark
end

-- Returns the member with the lowest score, which shows whose a sorted set is.
local function lowest_of(which, key)
  local members = read(which, 'ZRANGEBYSCORE', key, '-inf', '+inf', 'LIMIT', '0', '1')
  return members and members[1]
end

local function mark_foreign_unless(which, lowest, is_known)
  if lowest and not is_known(lowest) then
    mark_foreign(which, 'zset')
  end
end

local function look_at_queue()
  head = read('queue', 'LINDEX', KEYS[2], '0')
  if head and not is_member(head) then
    mark_foreign('queue', 'list')
  end
  if not (head and read('deadlines', 'ZSCORE', KEYS[3], head)) then
    local lowest = lowest_of('deadlines', KEYS[3])
    mark_foreign_unless('deadlines', lowest, is_member)
    leftovers = lowest and not head
  end
  mark_foreign_unless('alive', lowest_of('alive', alive), ours)
  mark_foreign_unless('arrivals', lowest_of('arrivals', arrivals), ours)
  is_suspicious = lowest_of('suspects', suspects)
  mark_foreign_unless('suspects', is_suspicious, function(suspect)
    return is_member(string.match(suspect, '^%S+ (.*)$') or '')
  end)
end

local function look()
  look_at_holder()
  look_at_queue()
  look_at_token()
end

-- Returns the channel that wakes a foreign member.
local function channel_of(member)
  local base = string.find(KEYS[1], '{', 1, true) and KEYS[1] or '{' .. KEYS[1] .. '}'
  return 'redisson_lock__channel:' .. base .. ':' .. member
end

-- Returns the liveness deadline of a waiting member with this score.
local function life(member, score)
  return tonumber(score and ours(member) and call('ZSCORE', alive, member) or score or 0)
end

-- Removes a waiting member. Returns how many list entries it had: none if there was only a score.
local function drop(member)
  local places = call('LREM', KEYS[2], 1, member)
  call('ZREM', KEYS[3], member)
  call('ZREM', alive, member)
  call('ZREM', arrivals, member)
  return places
end

local function drop_leftovers()
  if leftovers then
    call('DEL', KEYS[3])
    leftovers = nil
  end
end

-- Sets a lease on a hold without an expiry, which otherwise would last for ever. A foreign holder
-- does not know of this lease, so there is a minimum.
local function end_hold_after(lease)
  if holder and call('PTTL', KEYS[1]) == -1 then
    left = math.max(tonumber(lease), ours(holder) and 0 or $foreign_lease_ms)
    call('PEXPIRE', KEYS[1], left)
  end
end

-- Fails on a replica or without enough replicas: the command changes nothing, but Redis refuses it
-- there like every write. PUBLISH is not refused, so this comes first. Allowed when memory is full.
local function assert_writable()
  call('HDEL', KEYS[1], '')
end

local function new_token()
  local last = math.max(last_token() or 0, tonumber(ARGV[#ARGV]))
  return last < now_us and clock or string.format('%.0f', last + 1)
end

local function remember_token(text)
  token = text
  -- No TTL, because an RFencedLock may continue from it at any time.
  call('SET', KEYS[4], text)
end

local function grant(member, text, lease)
  remember_token(text)
  call('HSET', KEYS[1], member, '1')
  call('PEXPIRE', KEYS[1], lease)
  holder, left = member, lease
end

-- Removes the expiry of the queue, because a JVM expects none, and renews that of the keys about
-- lockcore members.
local function keep_queue()
  call('PERSIST', KEYS[2])
  call('PERSIST', KEYS[3])
  call('PEXPIRE', alive, $alive_ms)
  call('PEXPIRE', arrivals, $alive_ms)
end

-- Returns a newcomer's score: high enough to stay in the future after every foreign member ahead
-- has subtracted five minutes. A higher score of the last member, on which JVMs base theirs, is
-- kept up to an hour above.
local function chained_score()
  local last = call('LINDEX', KEYS[2], -1)
  local score = last and tonumber(call('ZSCORE', KEYS[3], last) or 0) or 0
  local ahead = math.max(call('LLEN', KEYS[2]) - call('ZCARD', alive), 0)
  local enough = now + left + $jvm_step_ms * (ahead + 1)
  return math.min(math.max(score, enough), enough + $slack_ms)
end

-- Records the member as the latest lockcore member to arrive.
local function arrive(member)
  local last = call('ZREVRANGE', arrivals, 0, 0, 'WITHSCORES')[2]
  call('ZADD', arrivals, (last or 0) + 1, member)
end

-- Whether a lockcore member still waits, but a JVM has removed it from the queue: the liveness
-- deadline `life` has not passed, but there is no score.
local function is_out(member, score, life)
  return not score and member ~= holder and tonumber(life or 0) > now
end

-- Restores lockcore members that a JVM removed because of its clock or of subtracted scores, at the
-- head of the queue. Does nothing and returns nothing unless one of these members, given with
-- scores and liveness deadlines, was removed. All are restored together, in order of arrival: if
-- each node restored only its own members, the last node to do so would be first.
local function take_back(members, deadlines, lives)
  local has_lost_one
  for i, member in ipairs(members) do
    if is_out(member, deadlines[i], lives[i]) then
      has_lost_one = true
      if not call('ZSCORE', arrivals, member) then
        arrive(member)
      end
    end
  end
  if not has_lost_one then
    return
  end
  drop_leftovers()
  local listed = {}
  for _, member in ipairs(call('LRANGE', KEYS[2], 0, -1)) do
    listed[member] = true
  end
  local arrived = call('ZRANGEBYSCORE', arrivals, '-inf', '+inf')
  for last = #arrived, 1, -$most_unpacked do
    local first = math.max(last - $most_unpacked + 1, 1)
    local scores = call('ZMSCORE', KEYS[3], unpack(arrived, first, last))
    local until_when = call('ZMSCORE', alive, unpack(arrived, first, last))
    for i = last, first, -1 do
      local member, at = arrived[i], i - first + 1
      if is_out(member, scores[at], until_when[at]) then
        if not listed[member] then
          call('LPUSH', KEYS[2], member)
        end
        call('ZADD', KEYS[3], now + $short_score_ms, member)
      end
    end
  end
  head = call('LINDEX', KEYS[2], '0')
  return true
end

-- Renews the liveness deadlines of waiting lockcore members, given with scores and earlier liveness
-- deadlines. A score rises by the elapsed time. With no foreign member ahead, the score is short:
-- no JVM subtracts from it any more, and JVMs should soon get past the members if the node dies.
local function raise(members, scores, lives)
  local leading, next_jvm = {}, nil
  for place, member in ipairs(call('LRANGE', KEYS[2], '0', '$last_leading')) do
    if not ours(member) then
      next_jvm = place > 1 and member
      break
    end
    leading[member] = true
  end
  local patience, short = now + $patience_ms, now + $short_score_ms
  local raised, living = {}, {}
  for i, member in ipairs(members) do
    if scores[i] then
      local passed = patience - (lives[i] or patience)
      local score = math.max(scores[i] + math.max(passed, 0), short)
      raised[#raised + 1] = leading[member] and short or score
      raised[#raised + 1] = member
      living[#living + 1] = patience
      living[#living + 1] = member
    end
  end
  if raised[1] then
    call('ZADD', KEYS[3], unpack(raised))
    call('ZADD', alive, 'GT', unpack(living))
    -- A JVM behind these members has a score based on their short score: keep it from expiring
    -- while they hold the lock.
    if next_jvm then
      call('ZADD', KEYS[3], 'XX', 'GT', now + $jvm_step_ms, next_jvm)
    end
    keep_queue()
  end
end

-- Drops a few lockcore members with a passed liveness deadline.
local function sweep()
  for _, member in ipairs(call('ZRANGEBYSCORE', alive, '-inf', now, 'LIMIT', 0, $sweep)) do
    drop(member)
  end
end

-- Records every foreign member without a subscription as a suspect, since it was first found so,
-- and returns the members whose time to subscribe is over. All at once, so that the threads of a
-- dead JVM cost a single grace period rather than one each. Includes the score: the same thread may
-- queue again.
local function look_for_gone()
  local members, channels, names = {}, {}, {}
  for _, member in ipairs(call('LRANGE', KEYS[2], '0', '$last_looked_at')) do
    if not ours(member) then
      members[#members + 1] = member
      channels[#channels + 1] = channel_of(member)
    end
  end
  local scores = call('ZMSCORE', KEYS[3], unpack(members))
  for i, member in ipairs(members) do
    names[i] = (scores[i] or '') .. ' ' .. member
  end
  local known, listening = call('ZMSCORE', suspects, unpack(names)), call('PUBSUB', 'NUMSUB', unpack(channels))
  local gone, silent = {}, {}
  for i, member in ipairs(members) do
    if scores[i] and listening[2 * i] == 0 then
      -- A time in the future is from before the server's clock was set back.
      local since = math.min(tonumber(known[i] or now), now)
      gone[member] = since + $grace_ms <= now
      silent[#silent + 1] = since
      silent[#silent + 1] = names[i]
    end
  end
  call('DEL', suspects)
  call('ZADD', suspects, unpack(silent))
  call('PEXPIRE', suspects, $suspects_ms)
  is_suspicious = true
  return gone
end

-- Whether anybody has subscribed to exactly this channel. PUBLISH also counts pattern
-- subscriptions, and a tool that watches everything would make dead members look alive.
local function listens(channel)
  return call('PUBSUB', 'NUMSUB', channel)[2] > 0
end

-- Offers the free lock to a live member. Returns 'granted', 'stopped', 'dropped' if the member was
-- removed from the queue, or nothing if it was skipped. A JVM is not woken while others are ahead:
-- it would retry without a pause.
local function offer(member, deaf, is_behind)
  local of, lease = ours(member)
  if not of then
    if is_behind then
      return 'stopped'
    end
    local channel = channel_of(member)
    call('PUBLISH', channel, '0')
    if not listens(channel) then
      gone = gone or look_for_gone()
      if gone[member] then
        drop(member)
        return 'dropped'
      end
    else
      if is_suspicious then
        call('DEL', suspects)
        is_suspicious = false
      end
      -- Hand-offs between lockcore members subtract nothing. The last score stays: newcomers base
      -- theirs on it.
      if call('LLEN', KEYS[2]) > 1 then
        call('ZADD', KEYS[3], 'XX', 'LT', now + $jvm_step_ms, member)
      end
    end
    return 'stopped'
  end
  --#include claim
  local text = new_token()
  if of ~= node then
    local channel = prefix .. ':grants:' .. of
    if deaf[of] or not listens(channel) then
      deaf[of] = true
      return
    end
    call('PUBLISH', channel, 'g ' .. member .. ' ' .. text .. ' ' .. claim)
  end
  drop(member)
  grant(member, text, claim)
  return 'granted'
end

-- Walks along the queue, at first only to the head.
local function walk(deaf)
  local passed, start, further, outcome = {}, 0, 0, nil
  repeat
    local members = call('LRANGE', KEYS[2], start, start + further)
    local deadlines = members[1] and call('ZMSCORE', KEYS[3], unpack(members)) or {}
    for i, member in ipairs(members) do
      local deadline = life(member, deadlines[i])
      if deadline <= now then
        -- A JVM may be alive. Once woken, it queues anew.
        if not ours(member) then
          call('PUBLISH', channel_of(member), '0')
        end
        drop(member)
      else
        outcome = offer(member, deaf, passed[1])
        if outcome == 'dropped' then
          outcome = nil
        elseif outcome then
          break
        else
          passed[#passed + 1] = member
          start = start + 1
        end
      end
    end
    further = $most_walked - 1
  until outcome or not members[1]
  if not passed[1] then
    return outcome or 'none'
  end
  -- The next touch of each restores its deadline; without a touch, they are soon out of the way.
  for first = 1, #passed, $most_unpacked do
    local lowered = {}
    for i = first, math.min(first + $most_unpacked - 1, #passed) do
      lowered[#lowered + 1] = now + $skipped_ms
      lowered[#lowered + 1] = passed[i]
    end
    call('ZADD', alive, 'LT', unpack(lowered))
  end
  keep_queue()
  skipped = #passed
  return outcome or 'none'
end

-- Grants the free lock to the first waiter that can take it. Returns 'granted', 'stopped' or
-- 'none'.
local function advance()
  assert_writable()
  if not head then
    drop_leftovers()
    return 'none'
  end
  return walk({})
end

-- Returns the reply: the outcome of the command, and the lock state after it.
local function full_reply(outcome, number)
  local of = holder and ours(holder)
  if of ~= node then
    return { asked, outcome, number, left, false, false, clock, skipped }
  end
  if not token then
    local last = last_token()
    token = last and string.format('%.0f', last)
    if not token then
      -- An operator deleted it.
      remember_token(new_token())
    end
  end
  return { asked, outcome, number, left, holder, token, clock, skipped }
end
