-- Gives everything back: the hot case. KEYS: door, counter of tokens. ARGV: member, floor; where
-- they are not the usual: latest time of servers before, prefix. Answers 1 if there are no waiters;
-- 2 if it was handed over to another node; `<token - floor><member>` if to a member of this one;
-- else in full.
local pcall, door, member = redis.pcall, KEYS[1], ARGV[1]
local held, drawn = pcall('GET', door), nil
if held == member then
  return pcall('DEL', door)
end
local call = redis.call
-- A lease that has ended is not given back.
if held == '+' .. member and call('PTTL', door) > 60000 then
  local queue = door .. ':queue'
  local head = pcall('ZRANGE', queue, '0', '0')[1]
  -- All that waited have left. Parts beside a lock are of a door that was lost: the long way drops
  -- them.
  if not head and call('EXISTS', queue, door .. ':holds', door .. ':reduced') == 0 then
    return call('DEL', door)
  end
  local lease = head and tonumber(string.match(head, '^:%d+:([1-9]%d*):w:', 25))
  if lease then
    local is_alive, channel = string.sub(head, 1, 24) == string.sub(member, 1, 24), nil
    if not is_alive and string.sub(head, 1, 2) == '~2' then
      local of = string.sub(head, 3, 24)
      channel = (ARGV[4] or 'lockcore') .. ':grants:' .. of
      is_alive = call('EXISTS', door .. ':patience:' .. of) == 1 and call('PUBSUB', 'NUMSUB', channel)[2] > 0
    end
    -- When memory is full INCR is refused, and the long way begins with a write that is not.
    drawn = is_alive and tonumber(pcall('INCR', KEYS[2]))
    local ahead = drawn and drawn - ARGV[2]
    if ahead and ahead > 0 and ahead < 100000000000000 then
      local claim = lease >= 30000 and 10000 or math.min(lease, math.max(math.floor(lease / 3), 2000))
      call('ZREM', queue, head)
      call('PSETEX', door, lease >= 30000 and '70000' or claim + 60000, '+' .. head)
      if not channel then
        return ahead .. head
      end
      local number = string.match(head, '^:(%d+)', 25)
      call('PUBLISH', channel, string.format('p %d %s %d', ahead + ARGV[2], number, claim))
      return 2
    end
  end
end

--#include queue/put_back

local counter, node = KEYS[2], string.sub(member, 3, 24)
local floor, elsewhere, prefix = tonumber(ARGV[2]), tonumber(ARGV[3] or 0), ARGV[4] or 'lockcore'

-- A function of its own, so that the short ways do not pay for its many variables.
return (function()
--#include queue/drop
end)()
