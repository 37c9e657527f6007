-- KEYS: hold, queue, deadlines, token. ARGV: node, prefix, member, latest time. Two short ways come
-- first, because they are what nearly every release is. What they do not expect, such as a key of
-- another type, is left to the long way; until then nothing was written.
local call, pcall = redis.call, redis.pcall
local head = pcall('LINDEX', KEYS[2], '0')

-- No waiters. The field is the caller's own, whatever else the hash may be. There is nothing to
-- tell, not even the time, which would take as long as all else.
if not head and pcall('HDEL', KEYS[1], ARGV[3]) == 1 then
  return 1
end

--#include clock

--#if peers
--#else
if type(head) == 'string' then
  -- The first who waits is one of ours, alive and connected: it gets the lock. A write that Redis
  -- refuses on a replica comes before the message.
  local fields, deadline = pcall('HRANDFIELD', KEYS[1], '2'), pcall('ZSCORE', KEYS[3], head)
  local of, lease = string.match(head, '^~1([^:]*):%d+:([1-9]%d*):')
  if of and #of == 22 and fields[1] == ARGV[3] and not fields[2]
    and type(deadline) == 'string' and tonumber(deadline) > now then
    local previous, channel = pcall('GET', KEYS[4]), ARGV[2] .. ':grants:' .. of
    local is_token = type(previous) == 'string' and not string.find(previous, '%D')
    local is_new = (not previous or is_token and tonumber(previous) < now_us) and tonumber(ARGV[4]) < now_us
    local is_mine = of == ARGV[1]
    if is_new and (is_mine or call('PUBSUB', 'NUMSUB', channel)[2] > 0) then
      local claim = tonumber(lease)
      claim = string.format('%d', math.min(claim, math.max(math.floor(claim / 3), 2000), 10000))
      call('HDEL', KEYS[1], ARGV[3])
      if not is_mine then
        call('PUBLISH', channel, 'g ' .. head .. ' ' .. clock .. ' ' .. claim)
      end
      call('SET', KEYS[4], clock, 'PX', '60000')
      call('HSET', KEYS[1], head, '1')
      call('PEXPIRE', KEYS[1], claim)
      call('LPOP', KEYS[2])
      call('ZREM', KEYS[3], head)
      return { clock, claim, is_mine and head }
    end
  end
end
--#end

--#include common

look()
if strange then
  return strange
end
local released = 0
if holder == ARGV[3] then
  released = call('HDEL', KEYS[1], holder)
  holder, left = false, 0
end
if not holder then
  advance()
end
return tell(released == 1 and 'released' or 'not_held', 0)
