-- Shared by the scripts of resources with permits.
-- KEYS: state (hash), holds (member -> end of its lease), queue (member -> place), deadlines
-- (member -> deadline).
-- ARGV: the calling node, the channel prefix, what each script adds, and last two times: the latest
-- that the node has seen on a server, and the latest that it has seen on servers before this one.
-- First everything is read and decided, then written, then published: a script that stops on the
-- way has changed nothing.

local S, H, Q, D = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local node, prefix = ARGV[1], ARGV[2]
-- No script keeps the server from others for long.
local most_granted, most_looked_at, most_reclaimed = 256, 1000, 256
-- What all permits of a resource weigh together where reads and writes share it.
local ALL = 1073741824
local time = call('TIME')
local clock = time[1] .. string.sub('00000' .. time[2], -6)
local now_us = tonumber(clock)
local now = math.floor(now_us / 1000)

-- As it stands in the state; `first` is the hold whose lease ends first.
local used, token, era, ends = 0, nil, nil, 0
local first, first_end, head, has_deadlines
-- The state is to be written.
local is_changed = false
-- What is to be written to the sorted sets: holds and deadlines with their scores in front, members
-- to take out.
local held, patient, out, taken, unreduced = {}, {}, {}, {}, {}
-- The same to look up: members that are out of the queue, holds that are taken out, new ends, new
-- deadlines.
local is_out, is_taken, held_until, patient_until = {}, {}, {}, {}
-- The greatest end or deadline that is to be written.
local latest = 0
-- What the reply will say, and what other nodes are told.
local grants, passed_over, more = {}, 0, 0
local told, told_order, revoked, revoked_order = {}, {}, {}, {}
-- The answer if a key at one of our names is no resource's. It is another program's, and nothing is
-- written.
local strange

-- Node, number, lease, weight and limit of a member; nothing for any other text.
local function parse(member)
  local of, number, lease, demand = string.match(member, '^~2([^:]*):(%d+):(%d+):([rw%d/]+):')
  lease = tonumber(lease)
  if not of or #of ~= 22 or lease == 0 then
    return
  end
  if demand == 'r' then
    return of, number, lease, 1, ALL
  elseif demand == 'w' then
    return of, number, lease, ALL, ALL
  end
  local weight, limit = string.match(demand, '^(%d+)/(%d+)$')
  weight, limit = tonumber(weight), tonumber(limit)
  if weight and weight >= 1 and weight <= limit and limit < ALL then
    return of, number, lease, weight, limit
  end
end

--#include strange

local function is_number(text)
  return #text <= 16 and string.match(text, '^%d+$')
end

-- The member with the lowest score, and that score. It tells whose a sorted set is.
local function lowest_of(which, key)
  local lowest = read(which, 'ZRANGE', key, '0', '0', 'WITHSCORES') or {}
  if lowest[1] and not parse(lowest[1]) then
    refuse(which, 'zset')
  end
  return lowest[1], tonumber(lowest[2])
end

local function look_at_state()
  local fields = read('lock_permits', 'HMGET', S, 'used', 'token', 'era', 'ends')
  if not fields then
    return
  end
  local is_ours = fields[4] or call('EXISTS', S) == 0
  for i = 1, 4 do
    if i ~= 3 and fields[i] and not is_number(fields[i]) then
      is_ours = false
    end
  end
  if fields[3] and fields[3] ~= 's' and fields[3] ~= 'x' then
    is_ours = false
  end
  if not is_ours then
    return refuse('lock_permits', 'hash')
  end
  used, token, era, ends = tonumber(fields[1]), fields[2], fields[3], tonumber(fields[4] or 0)
end

local function look_at_holds()
  first, first_end = lowest_of('lock_permits_holds', H)
end

local function look_at_queue()
  head = lowest_of('lock_permits_queue', Q)
  has_deadlines = lowest_of('lock_permits_deadlines', D)
end

local function look()
  look_at_state()
  look_at_holds()
  look_at_queue()
end

-- Nothing if the member was not given up.
local function look_at_tombstone(key)
  local mark = read('lock_permits_gone', 'GET', key)
  if mark and mark ~= '1' then
    refuse('lock_permits_gone', 'string')
  end
  return mark
end

-- What a hold weighs: what it asked for, unless it was reduced to less.
local function weight_of(member, reduced)
  if reduced then
    return tonumber(reduced) or 0
  end
  local _, _, _, weight = parse(member)
  if not weight then
    refuse('lock_permits_holds', 'zset')
  end
  return weight or 0
end

-- A token above all before it. One that cannot be followed below 2^53 counts as none.
local function new_token()
  local last = tonumber(token or 0)
  if last >= 9007199254740991 then
    last = 0
  end
  last = math.max(last, tonumber(ARGV[#ARGV - 1]))
  token = last < now_us and clock or string.format('%.0f', last + 1)
  is_changed = true
end

-- What was lost is computed again, before anything is decided by it.
local function heal()
  if not first then
    is_changed = used and used ~= 0
    used = 0
    return
  end
  if not used then
    used, is_changed = 0, true
    local holders = call('ZRANGE', H, 0, -1)
    for from = 1, #holders, 1000 do
      local to = math.min(from + 999, #holders)
      for i, reduced in ipairs(call('HMGET', S, unpack(holders, from, to))) do
        used = used + weight_of(holders[from + i - 1], reduced)
      end
    end
  end
  if not token then
    new_token()
  end
end

-- Something that is written counts until then: all keys live on for a while.
local function keep_until(at)
  latest = math.max(latest, at)
end

-- Takes a hold out with the weight that it has now.
local function take_hold(member, reduced)
  is_taken[member] = true
  taken[#taken + 1] = member
  used = math.max(used - weight_of(member, reduced), 0)
  is_changed = true
  if reduced then
    unreduced[#unreduced + 1] = member
  end
end

-- Takes out holds whose leases have ended.
local function reclaim()
  if not first_end or first_end > now then
    return
  end
  local lapsed = call('ZRANGEBYSCORE', H, '-inf', now, 'LIMIT', 0, most_reclaimed + #taken)
  local count = 0
  for i, reduced in ipairs(lapsed[1] and call('HMGET', S, unpack(lapsed)) or {}) do
    if count < most_reclaimed and not is_taken[lapsed[i]] then
      count = count + 1
      take_hold(lapsed[i], reduced)
    end
  end
  if count == most_reclaimed then
    more = 1
  end
end

local function take_out(member)
  is_out[member] = true
  out[#out + 1] = member
end

-- Gives the member what it asks for, for so long.
local function grant(member, weight, ms)
  -- All holds there are have one token, so one register refuses whatever is older, reads as well.
  -- A server before this one may have granted a write whose token is not known here: it is not
  -- above the times of that server.
  if weight == ALL or era ~= 's' or not token or tonumber(token) <= tonumber(ARGV[#ARGV]) then
    new_token()
  end
  era = weight == ALL and 'x' or 's'
  used, is_changed = used + weight, true
  held_until[member] = now + ms
  held[#held + 1] = now + ms
  held[#held + 1] = member
  keep_until(now + ms)
end

-- Adds to what a node is told: one message for all that is theirs.
local function add(messages, order, of, part)
  local parts = messages[of]
  if not parts then
    parts = {}
    messages[of] = parts
    order[#order + 1] = of
  end
  parts[#parts + 1] = part
end

-- Tells the member's node: the caller by the reply, others by message.
local function tell_node(of, number, member, ms)
  if of == node then
    grants[#grants + 1] = member
    grants[#grants + 1] = ms
  else
    add(told, told_order, of, number .. ' ' .. ms)
  end
end

-- Renews a waiting member's patience, unless it has more already.
local function raise(member, deadline)
  local at = math.max(tonumber(deadline or 0), now + 15000)
  patient_until[member] = at
  patient[#patient + 1] = string.format('%.0f', at)
  patient[#patient + 1] = member
  keep_until(now + 15000)
end

-- Drops a few whose deadline has passed, wherever they stand.
local function sweep()
  local raised = #patient / 2
  local dropped = 0
  for _, ghost in ipairs(call('ZRANGEBYSCORE', D, '-inf', now, 'LIMIT', 0, 16 + raised + #out)) do
    if dropped < 16 and not patient_until[ghost] and not is_out[ghost] then
      take_out(ghost)
      dropped = dropped + 1
    end
  end
end

-- Grants, from the head on, as long as it fits. A head that does not fit keeps what is free:
-- otherwise small requests would starve large ones. Returns whether no connected member is left.
local function advance()
  -- Somebody has subscribed to this very channel. PUBLISH counts those with a pattern as well.
  local connected = { [node] = true }
  local start, width, looked_at, dropped, granted = 0, 1, 0, 0, 0
  while true do
    local members = call('ZRANGE', Q, start, start + width - 1)
    local deadlines = members[1] and call('ZMSCORE', D, unpack(members)) or {}
    for i, member in ipairs(members) do
      if not is_out[member] then
        local of, number, lease, weight, limit = parse(member)
        if not of then
          refuse('lock_permits_queue', 'zset')
          return false
        end
        if looked_at == most_looked_at then
          -- Had none been taken out, the next command would look at the same ones again, and say
          -- so again.
          more = dropped + granted > 0 and 1 or more
          return false
        end
        looked_at = looked_at + 1
        if (patient_until[member] or tonumber(deadlines[i] or 0)) <= now then
          take_out(member)
          dropped = dropped + 1
        elseif used >= limit then
          -- Nothing is free by its limit: then it makes no difference whether it is connected.
          return false
        else
          if connected[of] == nil then
            connected[of] = call('PUBSUB', 'NUMSUB', prefix .. ':grants:' .. of)[2] > 0
          end
          if not connected[of] then
            -- Whether it would fit or not. Its next touch restores it; if none comes, it is soon
            -- out of the way.
            passed_over = passed_over + 1
            patient[#patient + 1] = string.format('%.0f', math.min(patient_until[member] or deadlines[i], now + 5000))
            patient[#patient + 1] = member
          elseif used + weight > limit then
            return false
          elseif granted == most_granted then
            more = 1
            return false
          else
            local claim = math.min(lease, math.max(math.floor(lease / 3), 2000), 10000)
            granted = granted + 1
            take_out(member)
            grant(member, weight, claim)
            tell_node(of, number, member, claim)
            if used >= ALL then
              -- All is taken: no limit is greater. By a smaller one, the next may have room.
              return false
            end
          end
        end
      end
    end
    if #members < width then
      return true
    end
    start = start + width
    width = math.min(width * 4, 64)
  end
end

-- If there are waiters: takes out what has lapsed, and hands on what is free. With no waiter to
-- grant it to, what has lapsed may stay: the next who does not fit looks.
local function hand_on()
  if head then
    reclaim()
    advance()
  end
end

-- In parts: a script has no room for more arguments than some thousands.
local function write_all(command, key, list)
  for from = 1, #list, 1000 do
    call(command, key, unpack(list, from, math.min(from + 999, #list)))
  end
end

-- The members of a list that did not come back in this very command.
local function without(list, is_back)
  local rest = {}
  for _, member in ipairs(list) do
    if not is_back[member] then
      rest[#rest + 1] = member
    end
  end
  return rest
end

local function publish(kind, messages, order)
  for _, of in ipairs(order) do
    call('PUBLISH', prefix .. ':grants:' .. of, kind .. ' ' .. table.concat(messages[of], ' '))
  end
end

local function write_state()
  local fields = { 'used', string.format('%.0f', used), 'ends', string.format('%.0f', ends) }
  if token then
    fields[5], fields[6] = 'token', token
  end
  if era then
    fields[#fields + 1] = 'era'
    fields[#fields + 1] = era
  end
  call('HSET', S, unpack(fields))
end

-- Writes what was decided. `newcomer` is to be appended to the queue. The first write changes
-- nothing and is allowed when memory is full, but Redis refuses it like every write on a replica or
-- without enough replicas. PUBLISH is not refused, so it comes last.
local function write(newcomer)
  call('HDEL', S, '')
  if not head and has_deadlines then
    call('DEL', D)
    has_deadlines = nil
  end
  -- Added before others are taken out, so that a key with its expiry does not go in between.
  write_all('ZADD', H, held)
  write_all('ZREM', H, without(taken, held_until))
  write_all('HDEL', S, unreduced)
  write_all('ZADD', D, patient)
  if newcomer then
    local last = call('ZREVRANGE', Q, 0, 0, 'WITHSCORES')
    call('ZADD', Q, (last[2] or 0) + 1, newcomer)
    out = without(out, { [newcomer] = true })
  end
  write_all('ZREM', Q, out)
  write_all('ZREM', D, out)
  if ends == 0 and is_changed then
    keep_until(now)
  end
  local is_later = latest > 0 and latest + 60000 > ends
  if is_later then
    -- Rounded up, so that it is seldom written.
    ends = math.ceil((latest + 60000) / 30000) * 30000
  end
  if is_later or is_changed then
    write_state()
  end
  if is_later then
    call('PEXPIREAT', S, ends)
  end
  if is_later or held[1] and not first then
    call('PEXPIREAT', H, ends)
  end
  if is_later or newcomer and not head then
    call('PEXPIREAT', Q, ends)
  end
  if is_later or patient[1] and not has_deadlines then
    call('PEXPIREAT', D, ends)
  end
  publish('r', revoked, revoked_order)
  publish('p ' .. (token or ''), told, told_order)
end

-- The reply: what the command did, and what it gave to the caller's own.
local function tell(outcome, number)
  local _, ending = lowest_of('lock_permits_holds', H)
  local left = ending and math.max(ending - now, 1) or 0
  return { outcome, number, left, token or false, clock, passed_over, more, grants }
end
