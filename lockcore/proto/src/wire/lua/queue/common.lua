-- Functions shared by the queue scripts. Needs the variables in `state`. A script first reads and
-- decides everything, then writes, then publishes messages, so a script that stops on the way has
-- changed nothing.

-- The limits for the work of one command, so that no script blocks the server for long.
local most_granted, most_looked_at, most_reclaimed, most_tombstones = $most_granted, $most_looked_at, $most_reclaimed, $most_tombstones
-- A lock's weight: all of a name.
local ALL = $all
-- How long a lock key with a flag outlives the lease, in ms, and how long every other key outlives
-- the latest expiry in it.
local margin = $margin_ms

-- Returns node id, member id, lease in ms, weight and limit of a member; nothing for any other
-- text.
local function parse(member)
  local of, number, lease, demand = string.match(member, '^~2([^:]*):(%d+):(%d+):([rw%d/]+):')
  lease = tonumber(lease)
  if not of or #of ~= $node_bytes or lease == 0 then
    return
  end
  if demand == 'r' then
    return of, number, lease, 1, ALL
  elseif demand == 'w' or string.sub(demand, 1, 2) == 'w/' then
    return of, number, lease, ALL, ALL
  end
  local weight, limit = string.match(demand, '^(%d+)/(%d+)$')
  weight, limit = tonumber(weight), tonumber(limit)
  if weight and weight >= 1 and weight <= limit and limit < ALL then
    return of, number, lease, weight, limit
  end
end

--#include foreign_key

local function text_of(number)
  return string.format('%d', number)
end

-- Returns the member with the lowest score in a sorted set, and the score. If it is not a member,
-- the sorted set belongs to another program.
local function lowest_of(which, key)
  local lowest = read(which, 'ZRANGE', key, '0', '0', 'WITHSCORES') or {}
  if lowest[1] and not parse(lowest[1]) then
    mark_foreign(which, 'zset')
  end
  return lowest[1], tonumber(lowest[2])
end

-- Records that something to be written expires at `at`, so that the lock key and the holds are kept
-- longer.
local function keep_until(at)
  latest = math.max(latest, at)
end

-- Returns a shared hold's weight: `score` if it was reduced, otherwise the weight that the member
-- requested.
local function weight_of(member, score)
  if score then
    return tonumber(score)
  end
  local _, _, _, weight = parse(member)
  if not weight then
    mark_foreign('lock:holds', 'zset')
  end
  return weight or 0
end

local function read_lock_key()
  lock_key_value = read('lock', 'GET', lock_key)
  if not lock_key_value then
    return
  end
  local ttl, body = call('PTTL', lock_key), nil
  mark, body = string.match(lock_key_value, '^([+-]?)(.*)$')
  if string.sub(body, 1, 1) == '*' then
    local sum, last = string.match(body, '^%*(%d+):(%d+)$')
    if not sum or #sum > $most_digits or #last > $most_digits then
      return mark_foreign('lock', 'string')
    end
    used, token = tonumber(sum), last ~= '0' and last or nil
    lock_key_ends = ttl > 0 and now + ttl or 0
    return
  end
  local line = string.find(body, '\n', 1, true)
  if line then
    body, batch = string.sub(body, 1, line - 1), string.sub(body, line)
  end
  local _, _, lease, weight = parse(body)
  if weight ~= ALL or line and not string.find(batch, '^\n%d[%d ]*$') then
    return mark_foreign('lock', 'string')
  end
  whole_left = mark == '' and ttl or ttl - margin
  if ttl == -1 then
    -- Another program has removed the TTL, so the hold gets a full lease.
    whole_left, is_whole_new = lease, true
  end
  if whole_left > 0 then
    whole = body
  else
    apart.lapsed, apart.batch, batch = body, batch, ''
  end
end

-- Returns the id in a member's text.
local function number_of(member)
  return string.match(member, '^%d+', $number_at)
end

-- Returns the number of members that share the exclusive hold: 1 outside a batch.
local function batch_size()
  return math.max(1, select(2, string.gsub(batch, '%d+', '')))
end

-- Returns true if the member id is in the batch.
local function is_of_batch(number)
  return string.find(batch .. ' ', '[ \n]' .. number .. ' ') ~= nil
end

-- Returns true if the member holds exclusively, alone or in a batch.
local function is_served(member)
  if batch == '' then
    return whole == member
  end
  local is_same = whole and string.sub(whole, 1, $node_colon) == string.sub(member, 1, $node_colon)
  return is_same and is_of_batch(number_of(member))
end

local function read_tombstones()
  return lowest_of('lock:gone', G) and true
end

-- Returns the sum of the weights of all shared holds: without the holds that this command takes,
-- and with the holds that it grants.
local function sum_of_weights()
  local sum, holders = 0, call('ZRANGE', H, 0, -1)
  for from = 1, #holders, $most_unpacked do
    local to = math.min(from + $most_unpacked - 1, #holders)
    for i, score in ipairs(call('ZMSCORE', R, unpack(holders, from, to))) do
      local holder = holders[from + i - 1]
      if holder == reduced[2] then
        -- This command reduces the hold, and has not written that yet.
        score = reduced[1]
      end
      sum = sum + (is_taken[holder] and 0 or weight_of(holder, score))
    end
  end
  for i = 2, #held, 2 do
    sum = sum + (is_granted[held[i]] and weight_of(held[i]) or 0)
  end
  return sum
end

-- Adds a part to a node's message, because each node gets a single message for all its members.
local function add(messages, of, part)
  local parts = messages[of]
  if not parts then
    parts = {}
    messages[of] = parts
    messages[#messages + 1] = of
  end
  parts[#parts + 1] = part
end

local function is_patient(of)
  return of == node or call('EXISTS', patience .. of) == 1
end

-- Returns the members with these ids, each behind a score in front of the queue, unless they have
-- tombstones. They were at the head before the batch was granted under the member `name`. The
-- scores end at `apart.front`. If they began there, they could be among the scores of a batch that
-- was set aside before, because the head's score has grown only by this batch since.
local function in_front(name, numbers)
  local of, tail, members = string.sub(name, 1, $node_colon), string.match(name, '^%d+(:.*)$', $number_at), {}
  local first = math.max(apart.front - #numbers, 0)
  for _, number in ipairs(numbers) do
    local member = of .. number .. tail
    if not (has_tombstones and call('ZSCORE', G, member)) then
      members[#members + 1] = { text_of(first + #members), member }
    end
  end
  return members
end

-- Sets a batch's members aside after its hold has ended without a release, because it is unknown
-- here which of them still wait. A member that is touched returns to the queue's front. The node's
-- liveness deadline may have expired meanwhile, because renewals of the hold do not extend it.
local function put_aside(name, numbers)
  local of, all = string.sub(name, 3, $node_end), {}
  for number in string.gmatch(numbers, '%d+') do
    all[#all + 1] = number
  end
  if all[1] and read('lock:passed', 'ZCARD', aside_keys .. of) then
    for _, one in ipairs(in_front(name, all)) do
      add(apart.aside, of, one[1])
      add(apart.aside, of, one[2])
      apart.scores[one[2]] = one[1]
    end
  end
end

-- Reads the lock key and the heads of the other keys, and repairs what expired or was lost.
local function read_and_repair()
  read_lock_key()
  local head, score = lowest_of('lock:queue', Q)
  local _, ending = lowest_of('lock:holds', H)
  has_reduced = lowest_of('lock:reduced', R) and true
  has_tombstones = mark == '-' and read_tombstones()
  if foreign_key then
    return
  end
  -- Scores in front of the queue end 10^9 below the head's, so that no waiter is in between. In an
  -- empty queue it is below the scores of all newly queued members.
  apart.front = score and math.max(score - $in_front, 0) or $empty_front
  if apart.lapsed then
    put_aside(apart.lapsed, apart.batch)
  end
  size = head and call('ZCARD', Q) or 0
  if whole then
    used, token, has_stale_holds, has_reduced = ALL, nil, ending or has_reduced, false
  else
    hold_count, first_end = ending and call('ZCARD', H) or 0, ending
    if hold_count == 0 then
      used, token = 0, nil
    elseif used == 0 then
      used = sum_of_weights()
    end
    if hold_count > 0 and lock_key_ends == 0 then
      keep_until(tonumber(call('ZRANGE', H, -1, -1, 'WITHSCORES')[2]))
    end
  end
end

-- Returns the next number of the token counter, which all locks on the server share.
local function next_of_counter()
  if not count and $is_primary then
    -- A quorum primary without a counter was emptied since the caller learned of its epoch.
    count = tonumber(redis.pcall('GET', counter)) or 0
    if count <= $lost_counter then
      foreign_key = foreign_key or redis.error_reply('FORGOTTEN the epoch of a quorum is over')
    end
  elseif not count then
    local last = read('lock:tokens', 'GET', counter)
    if last and not string.match(last, '^-?%d+$') then
      mark_foreign('lock:tokens', 'string')
    end
    count = tonumber(last or 0) or 0
  end
  return count + 1
end

-- Issues `holds` tokens, or one, and returns the first. They are the counter's next numbers, if
-- these are above everything that the caller has seen.
local function issue(holds)
  local next, others = next_of_counter(), (holds or 1) - 1
  if next <= token_floor or next + others >= $token_limit then
    -- Another quorum primary may be ahead, and the clocks of different primaries cannot be
    -- compared.
    next = math.max(token_floor, $is_primary and 0 or clock) + 1
  end
  count, issued = next + others, text_of(next)
  return issued
end

-- Returns the score for a newly queued member, from the token counter.
local function next_score()
  local next = next_of_counter()
  if next <= $lost_counter or next >= $token_limit then
    local last = issued
    issue()
    issued = last
  else
    count = next
  end
  return text_of(count)
end

-- Removes a shared hold, and subtracts its weight.
local function take_hold(member, score)
  is_taken[member] = true
  taken[#taken + 1] = member
  hold_count = hold_count - 1
  used = used - weight_of(member, score)
  if hold_count == 0 then
    used, token = 0, nil
  elseif used < hold_count then
    -- Each hold weighs at least 1, so the sum was wrong. If the reduced weights were lost, this
    -- hold counts as a lock, and the others would count as nothing.
    used = sum_of_weights()
  end
  if score then
    unreduced[#unreduced + 1] = member
  end
end

-- Removes a member's hold, exclusive or shared. Returns true if it existed.
local function take_any(member)
  if whole then
    local is_there = whole == member
    if is_there then
      whole, batch, used = nil, '', 0
    end
    return is_there
  end
  if has_stale_holds or is_taken[member] or not call('ZSCORE', H, member) then
    return false
  end
  take_hold(member, call('ZSCORE', R, member))
  return true
end

-- Removes expired shared holds, up to the limit for one command.
local function reclaim()
  -- A force release has taken all holds, perhaps more than Lua has room for below.
  if not first_end or first_end > now or hold_count == 0 then
    return
  end
  local lapsed = call('ZRANGEBYSCORE', H, '-inf', now, 'LIMIT', 0, most_reclaimed + #taken)
  local reclaimed = 0
  for i, score in ipairs(lapsed[1] and call('ZMSCORE', R, unpack(lapsed)) or {}) do
    if reclaimed < most_reclaimed and not is_taken[lapsed[i]] then
      reclaimed = reclaimed + 1
      take_hold(lapsed[i], score)
    end
  end
  if reclaimed == most_reclaimed then
    more = 1
  end
end

local function take_out(member)
  is_out[member] = true
  out[#out + 1] = member
  size = size - 1
end

-- Issues a token for the shared holds, unless they have one that is above everything seen on
-- previous servers. All shared holds have one token, so that a resource with a single stored token
-- refuses any older holder, reads included. A previous server may have granted a lock whose token
-- is unknown here. That token is not above the previous server's times.
local function issue_shared()
  if not token or tonumber(token) <= elsewhere then
    token = issue()
  elseif $is_primary then
    -- No number is drawn, but a lost counter must be noticed all the same.
    next_of_counter()
  end
end

-- Grants a member `weight` for `ms`. For an exclusive hold, the lock key gets the flag `new_mark`.
local function grant(member, weight, ms, new_mark)
  is_granted[member] = true
  used = used + weight
  if weight == ALL then
    issue(batch_size())
    whole, whole_left, is_whole_new, mark = member, ms, true, new_mark
    return
  end
  issue_shared()
  is_held[member] = true
  hold_count = hold_count + 1
  held[#held + 1] = text_of(now + ms)
  held[#held + 1] = member
  keep_until(now + ms)
end

-- Reports a granted member to its node: to the calling node in the reply, to another node in a
-- message.
local function report_grant(of, number, member, ms)
  if of == node then
    grants[#grants + 1] = member .. batch
    grants[#grants + 1] = ms
  elseif batch ~= '' then
    add(grant_messages, of, ms .. ' ' .. string.sub(batch, 2))
  else
    add(grant_messages, of, number .. ' ' .. ms)
  end
end

-- Renews the calling node's liveness deadline if little time is left.
local function raise_low()
  if call('PTTL', patience .. node) < $fresh_ms then
    is_raised = true
  end
end

-- Iterates over the waiting members by score: the queue, merged with members that return to it.
local function each_waiting()
  local start, width, at, back = 0, 1, 1, 1
  local members = call('ZRANGE', Q, '0', '0', 'WITHSCORES')
  return function()
    while true do
      if not members[at] and #members == 2 * width then
        start = start + width
        width = math.min(width * 4, $most_read)
        members, at = call('ZRANGE', Q, start, start + width - 1, 'WITHSCORES'), 1
      end
      local member, score = members[at], members[at + 1]
      local first = apart.returned[back]
      if first and (not member or tonumber(first[1]) < tonumber(score)) then
        back = back + 1
        return first[2], first[1]
      end
      at = at + 2
      if not member or not is_out[member] and not is_back[member] then
        return member, score
      end
    end
  end
end

-- Skips a member of a node that is not connected: takes it out of the queue, and sets it aside with
-- its score.
local function skip(of, member, score)
  take_out(member)
  skipped = skipped + 1
  if not apart.aside[of] then
    read('lock:passed', 'ZCARD', aside_keys .. of)
  end
  add(apart.aside, of, score)
  add(apart.aside, of, member)
end

-- Takes the members out of the queue that form a batch with `first`: the next members of the same
-- node that differ only in their ids.
local function take_batch(first, next_waiting)
  local of, tail = string.sub(first, 1, $node_colon), string.match(first, '^%d+(:.*)$', $number_at)
  local most, numbers = tonumber(string.match(tail, '^:%d+:w/(%d+):') or 1), { number_of(first) }
  while #numbers < most do
    local member = next_waiting()
    local number, same = string.match(member or '', '^(%d+)(:.*)$', $number_at)
    if same ~= tail or string.sub(member, 1, $node_colon) ~= of then
      break
    end
    take_out(member)
    is_granted[member] = true
    numbers[#numbers + 1] = number
  end
  batch = numbers[2] and '\n' .. table.concat(numbers, ' ') or ''
end

-- Walks over the queue from the head, and grants the lock as long as the demand fits. A head that
-- does not fit stops the walk, because otherwise small requests would starve large ones. Members of
-- nodes that are not connected are taken out of the queue. Returns true if the walk reached the
-- end, so that no connected member is left.
local function advance()
  local patient, connected = {}, { [node] = true }
  local looked_at, granted = 0, 0
  local next_waiting = each_waiting()
  for member, score in next_waiting do
    if looked_at == most_looked_at then
      more = 1
      return false
    end
    looked_at = looked_at + 1
    local of, number, lease, weight, limit = parse(member)
    if not of then
      mark_foreign('lock:queue', 'zset')
      return false
    end
    if patient[of] == nil then
      patient[of] = is_patient(of)
    end
    if not patient[of] then
      take_out(member)
    else
      if connected[of] == nil then
        -- Somebody must subscribe to exactly this channel. The reply to PUBLISH also counts pattern
        -- subscribers.
        connected[of] = call('PUBSUB', 'NUMSUB', prefix .. ':grants:' .. of)[2] > 0
      end
      if not connected[of] then
        -- This happens whether the demand fits or not, because a dead writer must not block the
        -- readers behind it.
        skip(of, member, score)
      elseif used + weight > limit then
        return false
      elseif granted == most_granted then
        more = 1
        return false
      else
        --#include claim
        granted = granted + 1
        take_out(member)
        if weight == ALL then
          take_batch(member, next_waiting)
        end
        grant(member, weight, claim, '+')
        report_grant(of, number, member, claim)
        if used >= ALL then
          -- Everything is taken, and no demand has a greater limit. With less taken, the next
          -- member may fit.
          return false
        end
      end
    end
  end
  return true
end

-- If there are waiters, removes expired holds and grants the free weight. Without waiters, expired
-- holds may stay, because the next request that does not fit checks them.
local function hand_on()
  if not whole and size > 0 then
    reclaim()
    advance()
  end
end

-- Runs a command with the elements of a list as arguments, in several calls if there are many,
-- because Lua has room for only some thousands.
local function write_all(command, key, list)
  for from = 1, #list, $most_unpacked do
    call(command, key, unpack(list, from, math.min(from + $most_unpacked - 1, #list)))
  end
end

-- Returns the members of a list that are not in the table `is_there`.
local function without(list, is_there)
  local rest = {}
  for _, member in ipairs(list) do
    if not is_there[member] then
      rest[#rest + 1] = member
    end
  end
  return rest
end

local function publish(kind, messages)
  for _, of in ipairs(messages) do
    call('PUBLISH', prefix .. ':grants:' .. of, kind .. ' ' .. table.concat(messages[of], ' '))
  end
end

local function write_holds()
  if has_stale_holds then
    call('DEL', H, R)
  end
  -- New holds are added before others are removed, so that the key does not vanish with its TTL in
  -- between.
  write_all('ZADD', H, held)
  write_all('ZREM', H, without(taken, is_held))
  write_all('ZADD', R, reduced)
  write_all('ZREM', R, unreduced)
end

local function write_queue(newcomers)
  if is_raised then
    call('PSETEX', patience .. node, '$patience_ms', '1')
  end
  for _, back in ipairs(apart.returned) do
    if not is_out[back[2]] then
      call('ZADD', Q, back[1], back[2])
    end
  end
  write_all('ZADD', Q, newcomers or {})
  write_all('ZREM', Q, out)
  if size > 0 and (is_raised or is_queue_kept) then
    call('PEXPIRE', Q, '$waiting_ttl_ms')
  end
  for _, of in ipairs(apart.aside) do
    -- A late acquire may have queued a member at the tail while it was set aside. LT keeps the
    -- better score.
    call('ZADD', aside_keys .. of, 'LT', unpack(apart.aside[of]))
    call('PEXPIRE', aside_keys .. of, '$aside_ms')
  end
  write_all('ZREM', aside_keys .. node, apart.no_longer)
  if tombstones[1] then
    write_all('ZADD', G, tombstones)
    -- The oldest tombstones are removed: expired ones, and if members were superseded, those above
    -- the limit.
    local ended = #call('ZRANGEBYSCORE', G, '-inf', now, 'LIMIT', 0, most_reclaimed)
    local beyond = superseded[1] and call('ZCARD', G) - most_tombstones or 0
    local swept = math.min(math.max(ended, beyond), most_reclaimed)
    if swept > 0 then
      call('ZREMRANGEBYRANK', G, 0, swept - 1)
    end
    call('PEXPIREAT', G, now + $tombstone_ms)
  end
end

-- Writes the lock key for shared holds, or for a flag without any hold.
local function write_shared(new_mark)
  if is_renewal and lock_key_value and hold_count > 0 then
    new_mark = mark
  elseif new_mark ~= '' then
    keep_until(now + $patience_ms)
  end
  local text = new_mark .. '*' .. text_of(used) .. ':' .. (token or '0')
  local is_later = latest > 0 and latest + margin > lock_key_ends
  if is_later then
    -- The expiry is rounded up, so that it is rarely written.
    lock_key_ends = math.ceil((latest + margin) / $round_ms) * $round_ms
    call('SET', lock_key, text, 'PXAT', text_of(lock_key_ends))
  elseif text ~= lock_key_value then
    call('SET', lock_key, text, 'KEEPTTL')
  end
  -- A key keeps its TTL when entries are added, so the TTL is set only if it is new or grows.
  if hold_count > 0 and (is_later or held[1] and not first_end) then
    call('PEXPIREAT', H, text_of(lock_key_ends))
  end
  if reduced[1] or is_later and has_reduced then
    call('PEXPIREAT', R, text_of(lock_key_ends))
  end
end

local function write_lock_key()
  local new_mark = has_tombstones and '-' or size > 0 and '+' or ''
  if whole then
    -- The flag is not lowered while this member holds, so it may announce more than there is.
    local is_stronger = mark == '' or new_mark == '-'
    new_mark = is_stronger and new_mark or mark
    local text = new_mark .. whole .. batch
    if is_whole_new or text ~= lock_key_value then
      call('PSETEX', lock_key, text_of(new_mark == '' and whole_left or whole_left + margin), text)
    end
  elseif hold_count > 0 or new_mark ~= '' then
    write_shared(new_mark)
  elseif lock_key_value then
    call('DEL', lock_key)
  end
  if has_reduced and hold_count == 0 then
    call('DEL', R)
  end
end

-- Writes everything that was decided. `newcomers`, each behind a score, are added to the queue. The
-- first write is to a key that never exists, so it changes nothing. It shows whether Redis refuses
-- writes: on a replica, without enough replicas, or during a slot migration. Redis refuses SET when
-- memory is full, but not DEL. Redis never refuses PUBLISH, so that comes last. DEL names two keys,
-- because a renewal may run behind ASKING on the server to which the slot moves. There Redis runs
-- a command with one absent key, although the key may not have moved yet.
local function write(needs_memory, newcomers)
  if needs_memory then
    call('SET', lock_key .. ':guard', '1', 'XX')
  else
    call('DEL', lock_key .. ':guard', lock_key .. ':guard2')
  end
  if count then
    call('SET', counter, text_of(count))
  end
  write_holds()
  write_queue(newcomers)
  write_lock_key()
  publish('r', revoked)
  publish('s', superseded)
  -- If a batch was granted, nothing else was.
  publish((batch == '' and 'p ' or 'w ') .. (issued or token or ''), grant_messages)
end

-- Returns the full reply: `outcome` and `number`, then the facts that every command reports, and
-- the grants to members of the calling node.
local function full_reply(outcome, number)
  local left = whole_left
  if not whole then
    local _, ending = lowest_of('lock:holds', H)
    left = ending and math.max(ending - now, 1) or 0
  end
  return { asked, outcome, number, left, issued or token or false, clock, skipped, more, grants }
end
