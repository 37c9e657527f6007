-- KEYS: hold, queue, deadlines, token. ARGV: node, prefix, member.
-- Two short ways come first, because they are what nearly every release is.
local call = redis.call
local head, released = call('LINDEX', KEYS[2], '0'), nil
local time = call('TIME')
local clock = time[1] .. string.sub('00000' .. time[2], -6)

if not head then
  -- Nobody waits.
  released = call('HDEL', KEYS[1], ARGV[3])
  if released == 1 then
    return clock
  end
else
--#if peers
  released = call('HDEL', KEYS[1], ARGV[3])
--#else
  -- The first who waits is one of ours, alive and connected: it gets the lock. All reads come before the
  -- first write, and a write that Redis refuses on a replica before the message.
  local deadline, previous = call('ZSCORE', KEYS[3], head), call('GET', KEYS[4])
  local of, lease = string.match(head, '^~1([^:]*):%d+:(%d+):')
  local is_alive = deadline and deadline * 1000 > tonumber(clock)
  local is_new = (tonumber(previous or 0) or 0) < tonumber(clock)
  released = call('HDEL', KEYS[1], ARGV[3])
  if released == 1 and of and #of == 22 and is_alive and is_new then
    local claim = tonumber(lease)
    claim = string.format('%d', math.min(claim, math.max(math.floor(claim / 3), 2000)))
    local is_mine = of == ARGV[1]
    local message = 'g ' .. head .. ' ' .. clock .. ' ' .. claim
    if is_mine or call('PUBLISH', ARGV[2] .. ':grants:' .. of, message) > 0 then
      call('SET', KEYS[4], clock, 'PX', #claim > 4 and tonumber(claim) > 60000 and claim or '60000')
      call('HSET', KEYS[1], head, '1')
      call('PEXPIRE', KEYS[1], claim)
      call('LPOP', KEYS[2])
      call('ZREM', KEYS[3], head)
      return { clock, claim, is_mine and head }
    end
  end
--#end
end

--#include common

look_at_holder()
if not holder then
  look_at_queue()
  advance()
end
return tell(released == 1 and 'released' or 'not_held', 0)
