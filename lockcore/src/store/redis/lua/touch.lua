-- KEYS: of each lock hold, queue, deadlines and token, and for peers alive, arrivals and suspects.
-- ARGV: node, prefix, then for each lock the number of its members, and these, all of this node;
-- last the latest time.
-- Answers the clock and how many listen to the node's channel, then for each lock: ms left of the
-- holder if all members wait, or these in a list with the holder and its token if it is of this
-- node; else an answer in full, or a list of what is strange there. In full, the outcome is one
-- letter a member: w(aiting), h(olding), g(one).
local call, pcall = redis.call, redis.pcall
local KEYS = KEYS

--#include clock

local listeners = call('PUBSUB', 'NUMSUB', ARGV[2] .. ':grants:' .. ARGV[1])[2]
local locks, answers, others = KEYS, { clock, listeners }, {}
-- Where the members of each lock begin and end in ARGV.
local first_of, last_of = {}, {}
--#if peers
local width = 7
--#else
local width = 4
--#end
local at = 3
for i = 1, #locks / width do
  first_of[i], last_of[i] = at + 1, at + ARGV[at]
  at = last_of[i] + 1
end

--#if peers
for i = 1, #first_of do
  others[i] = i
end
--#else
-- The node of a member of ours.
local function node_of(member)
  local of, lease = string.match(member, '^~1([^:]*):%d+:(%d+):')
  return of and #of == 22 and tonumber(lease) > 0 and of
end

-- The usual: one of ours holds, all members wait, no deadline has passed, nothing is strange. Then
-- there is less to look at, and this is the answer. Nothing in any other case, and then nothing was
-- written. The expiries come first: they are allowed when memory is full.
local function touch_waiting(hold, queue, deadlines, token, first, last)
  local fields, head = pcall('HRANDFIELD', hold, '2', 'WITHVALUES'), pcall('LINDEX', queue, '0')
  local lowest = pcall('ZRANGEBYSCORE', deadlines, '-inf', '+inf', 'WITHSCORES', 'LIMIT', '0', '2')
  local number, left = pcall('GET', token), call('PTTL', hold)
  local of = fields[2] == '1' and not fields[3] and node_of(fields[1])
  local is_token = type(number) == 'string' and string.match(number, '^[1-9]%d*$') and tonumber(number) < 9007199254740991
  if not of or not is_token or left < 0 or type(head) ~= 'string' or not lowest[2] or tonumber(lowest[2]) <= now then
    return
  end
  local patience, greatest, raised = now + 15000, lowest[2], {}
  if first == last and ARGV[first] == head and lowest[1] == head and not lowest[3] then
    raised = { patience, head }
  else
    local scores = call('ZMSCORE', deadlines, unpack(ARGV, first, last))
    local newest = call('ZREVRANGE', deadlines, '0', '0', 'WITHSCORES')
    if not (node_of(head) and node_of(lowest[1]) and node_of(newest[1])) then
      return
    end
    for i = first, last do
      if not scores[i - first + 1] then
        return
      end
      raised[#raised + 1] = patience
      raised[#raised + 1] = ARGV[i]
    end
    greatest = newest[2]
  end
  local ends = math.max(tonumber(greatest), patience) + 60000
  if ends > 9007199254740991 then
    return
  end
  call('PEXPIREAT', queue, ends)
  call('PEXPIREAT', deadlines, ends)
  call('ZADD', deadlines, 'XX', 'GT', unpack(raised))
  left = math.max(left, 1)
  return of == ARGV[1] and { left, fields[1], number } or left
end

for i = 1, #first_of do
  local k = 4 * i
  local answer = touch_waiting(locks[k - 3], locks[k - 2], locks[k - 1], locks[k], first_of[i], last_of[i])
  if answer then
    answers[i + 2] = answer
  else
    others[#others + 1] = i
  end
end
if not others[1] then
  return answers
end
--#end

--#include common
--#include several

local function touch(members)
  look()
  if strange then
    return told_apart()
  end
  local deadlines = call('ZMSCORE', KEYS[3], unpack(members))
--#if peers
  local lives = call('ZMSCORE', alive, unpack(members))
--#end
  assert_writable()
  if not head then
    drop_leftovers()
    deadlines = {}
  end
--#if peers
  -- A member that a JVM's clock or arithmetic has thrown out gets its place at the head back, and
  -- all others of ours with it, in the order in which they came: were each put back by its own
  -- node, the last node to look would be first.
  local function is_out(member, score, life)
    return not score and member ~= holder and tonumber(life or 0) > now
  end
  local has_lost_one
  for i, member in ipairs(members) do
    if is_out(member, deadlines[i], lives[i]) then
      has_lost_one = true
      if not call('ZSCORE', arrivals, member) then
        arrive(member)
      end
    end
  end
  if has_lost_one then
    local listed = {}
    for _, member in ipairs(call('LRANGE', KEYS[2], 0, -1)) do
      listed[member] = true
    end
    local arrived = call('ZRANGEBYSCORE', arrivals, '-inf', '+inf')
    for last = #arrived, 1, -1000 do
      local first = math.max(last - 999, 1)
      local scores = call('ZMSCORE', KEYS[3], unpack(arrived, first, last))
      local until_when = call('ZMSCORE', alive, unpack(arrived, first, last))
      for i = last, first, -1 do
        local member, at = arrived[i], i - first + 1
        if is_out(member, scores[at], until_when[at]) then
          if not listed[member] then
            call('LPUSH', KEYS[2], member)
          end
          call('ZADD', KEYS[3], now + 60000, member)
        end
      end
    end
    deadlines = call('ZMSCORE', KEYS[3], unpack(members))
  end
  local letters = {}
  for i, member in ipairs(members) do
    letters[i] = deadlines[i] and 'w' or member == holder and 'h' or 'g'
  end
  raise(members, deadlines, lives)
  sweep()
--#else
  local letters, raised = {}, {}
  for i, member in ipairs(members) do
    if deadlines[i] then
      letters[i] = 'w'
      raised[#raised + 1] = now + 15000
      raised[#raised + 1] = member
    else
      letters[i] = member == holder and 'h' or 'g'
    end
  end
  if raised[1] then
    call('ZADD', KEYS[3], 'XX', 'GT', unpack(raised))
    sweep()
    keep_queue()
  elseif head then
    sweep()
  end
--#end
  if holder then
    local _, lease = ours(members[1])
    end_hold_after(lease)
  else
    look_at_queue()
    advance()
  end
  return tell(table.concat(letters), listeners)
end

for _, i in ipairs(others) do
  turn_to({ unpack(locks, width * (i - 1) + 1, width * i) })
  answers[i + 2] = touch({ unpack(ARGV, first_of[i], last_of[i]) })
end
return answers
