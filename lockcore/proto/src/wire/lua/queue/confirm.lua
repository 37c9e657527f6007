-- Renews one hold, and tells its token: a new one for a lock, whose token stands nowhere. KEYS:
-- door, counter of tokens. ARGV: node, floor, latest time of servers before, prefix, member, lease.
-- Answers `<token><member>` or `<token> <clock><member>` if it is held, for a run with its numbers
-- in front of the member; else in full, with h(eld) or n(ot held).
-- Pays: "Hand-off from one process to another" in docs/performance/measured.md.
local call, pcall, door, counter, member = redis.call, redis.pcall, KEYS[1], KEYS[2], ARGV[5]
local text = pcall('GET', door)
local beyond = text == member and 0 or (text == '+' .. member or text == '-' .. member) and $margin_ms
local numbers, drawn, draws = '', nil, 1
if not beyond and type(text) == 'string' and string.sub(text, 2, #member + 2) == member .. '\n' then
  beyond, numbers = $margin_ms, string.sub(text, #member + 2)
  draws = select(2, string.gsub(numbers, '%d+', ''))
end
local left = beyond and call('PTTL', door)
-- Without an end, which another program took away, it gets one.
if left and (left > beyond or left == -1) then
  -- When memory is full INCR is refused, and the long way begins with a write that is not.
  drawn = tonumber(draws == 1 and pcall('INCR', counter) or pcall('INCRBY', counter, draws))
  local ahead = drawn and drawn - ARGV[2] - draws + 1
  -- The long way refuses where the epoch of a primary is over.
  if drawn and not ($is_primary and ahead <= 0 and drawn <= $lost_counter) then
    call('PEXPIRE', door, ARGV[6] + beyond)
    if ahead > 0 and drawn < $token_limit then
      return string.format('%d', drawn - draws + 1) .. numbers .. member
    end
    --#include clock
    local token = math.max(ARGV[2], $is_primary and 0 or clock) + 1
    call('SET', counter, string.format('%d', token + draws - 1))
    return string.format('%d', token) .. ' ' .. clock .. numbers .. member
  end
elseif type(text) == 'string' then
  local token = string.match(text, '^[+-]?%*[1-9]%d*:([1-9]%d*)$')
  local ends = token and pcall('ZSCORE', door .. ':holds', member)
  if type(ends) == 'string' then
    --#include clock
    local now, left = math.floor(clock / 1000), call('PTTL', door)
    -- Later than the door lives, its expiry would have to be written, too.
    if tonumber(ends) > now and ARGV[6] + $margin_ms <= left then
      -- Changes nothing. Redis refuses it on a replica, ZADD after it is allowed when memory is
      -- full.
      call('DEL', door .. ':guard')
      call('ZADD', door .. ':holds', string.format('%d', now + ARGV[6]), member)
      return token .. ' ' .. clock .. member
    end
  end
end

--#include queue/put_back

local node, floor, elsewhere, prefix = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]

-- A function of its own, so that the short ways do not pay for its many variables.
return (function()
--#include queue/state
return (function()
--#include queue/common

local lease = tonumber(ARGV[6])
is_renewal = true
look()
if foreign_key then
  return foreign_key
end
--#include queue/renew_hold
if letter == 'h' and whole then
  issue(run_size())
elseif letter == 'h' then
  token = token or issue()
end
if foreign_key then
  return foreign_key
end
write()
if letter == 'h' then
  grants = { member .. run, lease }
end
return tell(letter, 0)
end)()
end)()
