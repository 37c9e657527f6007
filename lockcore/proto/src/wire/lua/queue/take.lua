-- The long path of an acquire. Needs, besides the variables for `common`: members, queue_limit.
-- Sets each member's outcome. Sets a number for each queued member (its position) and for each
-- member that found the queue full (the queue length at that time).

--#include queue/common

asked = members[1]
read_and_repair()
local has_tombstone = has_tombstones and read('lock:gone', 'ZMSCORE', G, unpack(members)) or {}
if foreign_key then
  return foreign_key
end
local ends = whole and {} or call('ZMSCORE', H, unpack(members))
local scores = size > 0 and call('ZMSCORE', Q, unpack(members)) or {}
-- New members for the queue, each behind its score, the index of each, and the queue length that a
-- refused member found.
local newcomers, index, full = {}, {}, {}
-- What is done once per command: the walk over the queue (nil before it, then whether it reached
-- the end), a check of the node's liveness deadline, and a search for dead waiters in a full queue.
local is_end, is_raise_settled, is_full_settled, is_swept

-- Adds the member's hold to the reply.
local function report(member, ms)
  is_granted[member] = true
  grants[#grants + 1] = member
  grants[#grants + 1] = ms
  return 'granted'
end

-- True once a batch hold is in the reply, which reports it for all its members.
local is_batch_reported = false

local function report_again(member, ms)
  if whole then
    if is_batch_reported then
      return 'granted'
    end
    is_batch_reported = batch ~= ''
    issue(batch_size())
    return report(whole .. batch, ms)
  end
  issue_shared()
  return report(member, ms)
end

local function grant_lease(member, weight, lease)
  grant(member, weight, lease, '')
  return report(member, lease)
end

local function sweep()
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

-- Returns true if the member waits only until a newer member of the same kind is queued.
local function keeps_newest(member)
  return string.match(member, '^~2[^:]*():%d+:%d+:w/0:') == $node_colon
end

-- Returns true if the other member is newer. Within a node, the ids define the order, because the
-- score of a member that was queued again does not. Member ids are not exact as numbers in Lua.
local function is_newer(other, member)
  local number, than = number_of(other), number_of(member)
  local counts = string.sub(other, 1, $node_colon) == string.sub(member, 1, $node_colon) or string.sub(than, -$round_bits) % $rounds > 0
  return counts and (#number > #than or #number == #than and number > than)
end

-- Returns the waiting members that this member supersedes; nothing if one of them, or the holder,
-- is newer.
local function older_than(member)
  local older, looked_at = {}, 0
  if not keeps_newest(member) then
    return older
  elseif whole and keeps_newest(whole) and is_newer(whole, member) then
    return
  end
  local last = call('ZRANGE', Q, -#out - most_looked_at, -1)
  for i = #last, 1, -1 do
    if not is_out[last[i]] and looked_at < most_looked_at then
      looked_at = looked_at + 1
      if keeps_newest(last[i]) then
        if is_newer(last[i], member) then
          return
        end
        older[#older + 1] = last[i]
      end
    end
  end
  return older
end

-- Removes members from the queue in favour of a newer member. They get tombstones, because a late
-- copy of the acquire would queue them again, and then an older member would supersede a newer one.
local function supersede(older)
  for _, member in ipairs(older) do
    local of, number = parse(member)
    take_out(member)
    tombstones[#tombstones + 1] = text_of(now + $tombstone_ms)
    tombstones[#tombstones + 1] = member
    add(superseded, of, number)
  end
  if older[1] then
    read_tombstones()
    has_tombstones = true
  end
  -- Members behind a removed head may fit.
  if older[1] and not whole then
    advance()
  end
end

-- Returns the number of members that wait within the holding batch: all but the first.
local function in_batch()
  return batch == '' and 0 or batch_size() - 1
end

local function wait(member, score)
  local is_waiting = index[member] or score and not is_out[member]
  if not is_waiting and queue_limit == 0 then
    return 'busy'
  end
  local older = {}
  if not is_waiting then
    older = older_than(member)
  end
  if older and not is_waiting and size + in_batch() - #older >= queue_limit and not is_full_settled then
    is_full_settled = true
    is_swept = call('EXISTS', lock_key .. ':swept') == 0
    if is_swept then
      sweep()
      older = older_than(member)
    end
  end
  if not older then
    return 'refused'
  end
  local waiting = size + in_batch() - #older
  if not is_waiting and waiting >= queue_limit then
    full[member] = waiting
    return 'full'
  end
  supersede(older)
  if not is_raise_settled then
    is_raise_settled = true
    raise_low()
  end
  if not is_waiting then
    index[member] = #newcomers / 2
    newcomers[#newcomers + 1] = next_score()
    newcomers[#newcomers + 1] = member
    is_queue_kept = is_queue_kept or size == 0
    size = size + 1
  end
  return 'queued'
end

local function take(i, member)
  if is_granted[member] then
    return 'granted'
  elseif has_tombstone[i] then
    return 'refused'
  elseif whole then
    return is_served(member) and report_again(member, whole_left) or wait(member, scores[i])
  end
  local _, _, lease, weight, limit = parse(member)
  if i == 1 and not lock_key_value and weight == ALL then
    -- Without a lock key there is nothing else, unless another program has deleted it. The members
    -- behind the first check the rest.
    used, has_tombstones, size = 0, false, members[2] and size or 0
    has_stale_holds = members[2] and (hold_count > 0 or has_reduced)
    hold_count, token, has_reduced = 0, nil, false
    return grant_lease(member, weight, lease)
  end
  local over = ends[i] and tonumber(ends[i])
  if not over and size == 0 and used + weight <= limit then
    return grant_lease(member, weight, lease)
  end
  -- Nothing becomes free within a command, so one removal and one walk are enough.
  if is_end == nil then
    reclaim()
  end
  if over and over > now then
    return report_again(member, over - now)
  end
  if over and not is_taken[member] then
    -- The member's own expired hold may remain, because only a limited number is removed at a time.
    take_hold(member, call('ZSCORE', R, member))
  end
  if is_end == nil then
    is_end = advance()
  end
  if is_granted[member] then
    return 'granted'
  end
  -- The caller is behind all others, so nobody ahead can be granted the lock.
  if is_end and size == 0 and used + weight <= limit then
    return grant_lease(member, weight, lease)
  end
  return wait(member, scores[i])
end

local outcomes, numbers, all_have_tombstones, is_any_granted = {}, {}, true, false
for i, member in ipairs(members) do
  outcomes[i] = take(i, member)
  all_have_tombstones = all_have_tombstones and outcomes[i] == 'refused' and has_tombstone[i]
  is_any_granted = is_any_granted or outcomes[i] == 'granted'
end
if foreign_key then
  return foreign_key
end
if not all_have_tombstones then
  write(newcomers[1] or is_any_granted, newcomers)
  if is_swept then
    -- The key did not exist before, so it belongs to no other program.
    call('PSETEX', lock_key .. ':swept', '$swept_ms', '1')
  end
end
for i, member in ipairs(members) do
  if outcomes[i] == 'queued' then
    local at = index[member]
    numbers[#numbers + 1] = in_batch() + (at and size - #newcomers / 2 + at or call('ZRANK', Q, member))
  elseif outcomes[i] == 'full' then
    numbers[#numbers + 1] = full[member]
  end
end
