-- KEYS: state, holds, queue, deadlines. ARGV: node, prefix, member, weight, latest times. Two
-- short ways come first, because nearly every release is one of them. The unexpected, such as a
-- key of another type, is left to the long way; until then nothing was written.
local call, pcall = redis.call, redis.pcall
local waiting = pcall('ZRANGE', KEYS[3], '0', '1')
local state = pcall('HMGET', KEYS[1], 'used', 'token', 'era', 'ends', ARGV[3])
local first_waiting, is_whole = waiting[1], state[1] and state[2] and state[3] and state[4]
if is_whole and not waiting.err and string.match(state[1] .. state[2] .. state[4], '^%d+$') then
  if not first_waiting then
    -- No waiters. The member is the caller's own, whatever else the key may be. The clock is not
    -- needed.
    if pcall('ZREM', KEYS[2], ARGV[3]) == 1 then
      local used = state[1] - (state[5] or ARGV[4])
      if state[5] then
        call('HDEL', KEYS[1], ARGV[3])
      end
      call('HSET', KEYS[1], 'used', used > 0 and string.format('%.0f', used) or '0')
      return 1
    end
  else
    -- The head takes all that is free afterwards, and is granted alone: it is a write, or none is
    -- behind it, or the next is alive and has no greater limit.
    local of, number, lease, demand = string.match(first_waiting, '^~2([^:]*):(%d+):(%d+):([rw%d/]+):')
    local weight, limit
    if demand == 'w' then
      weight, limit = '1073741824', '1073741824'
    elseif demand then
      weight, limit = string.match(demand, '^(%d+)/(%d+)$')
    end
    local last, is_alone = first_waiting, true
    if demand ~= 'w' and waiting[2] then
      last = waiting[2]
      local next_of, next_limit = string.match(last, '^~2([^:]*):%d+:%d+:%d+/(%d+):')
      is_alone = next_of and #next_of == 22 and tonumber(next_limit) <= tonumber(limit or 0)
    end
    if weight and is_alone and #of == 22 and not state[5] and state[1] - ARGV[4] + weight == tonumber(limit) then
      local holds, deadlines = pcall('ZRANGE', KEYS[2], '0', '0', 'WITHSCORES'), pcall('ZMSCORE', KEYS[4], first_waiting, last)
      local time = call('TIME')
      local clock = time[1] .. string.sub('00000' .. time[2], -6)
      local now, claim = math.floor(clock / 1000), tonumber(lease)
      claim = math.min(claim, math.max(math.floor(claim / 3), 2000), 10000)
      -- Of others that hold, no lease may have ended: more would be free than it seems.
      local is_held = holds[1] == ARGV[3] and (state[1] == ARGV[4] or tonumber(holds[2]) > now)
        or holds[1] and tonumber(holds[2]) > now and pcall('ZSCORE', KEYS[2], ARGV[3])
      local is_write, token = demand == 'w', state[2]
      if is_held and tonumber(deadlines[1] or 0) > now and tonumber(deadlines[2] or 0) > now
        and now + claim + 60000 <= tonumber(state[4]) and math.max(token, ARGV[5]) < tonumber(clock) then
        local channel, is_mine = ARGV[2] .. ':grants:' .. of, of == ARGV[1]
        -- Not the count that PUBLISH gives: that has those with a pattern in it.
        if is_mine or call('PUBSUB', 'NUMSUB', channel)[2] > 0 then
          if is_write or state[3] ~= 's' or tonumber(token) <= tonumber(ARGV[6]) then
            token = clock
          end
          -- Taken out of the queue first: that is allowed when memory is full.
          call('ZREM', KEYS[3], first_waiting)
          call('ZREM', KEYS[4], first_waiting)
          call('ZADD', KEYS[2], now + claim, first_waiting)
          call('ZREM', KEYS[2], ARGV[3])
          call('HSET', KEYS[1], 'used', limit, 'token', token, 'era', is_write and 'x' or 's')
          if not is_mine then
            call('PUBLISH', channel, 'p ' .. token .. ' ' .. number .. ' ' .. claim)
          end
          return { clock, token, claim, is_mine and first_waiting }
        end
      end
    end
  end
end

--#include permits/common

look()
if strange then
  return strange
end
heal()
local is_there = call('ZSCORE', H, ARGV[3])
if is_there then
  take_hold(ARGV[3], call('HGET', S, ARGV[3]))
end
hand_on()
if strange then
  return strange
end
write()
return tell(is_there and 'released' or 'not_held', 0)
