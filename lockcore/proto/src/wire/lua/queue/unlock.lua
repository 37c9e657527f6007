-- Releases an exclusive hold, the usual case of a release. KEYS: lock key, token counter. ARGV:
-- member, token floor; if they are not the default: latest time of previous servers, channel
-- prefix. Replies 1 if nobody waited; 2 if the lock was granted to another node; `<token><member>`
-- if it was granted to a member of this node, with the ids of a batch behind the member; a full
-- reply in other cases.
-- Pays: "Hand-off from one process to another" in docs/performance/measured.md.
local pcall, lock_key, member = redis.pcall, KEYS[1], ARGV[1]
local held, drawn, draws = pcall('GET', lock_key), nil, 1
if held == member then
  return pcall('DEL', lock_key)
end
local call = redis.call
local mark = type(held) == 'string' and string.sub(held, 1, 1)
local is_held = (mark == '+' or mark == '-')
  and (held == mark .. member or string.sub(held, 2, #member + 2) == member .. '\n')
-- An expired lease is not released.
if is_held and call('PTTL', lock_key) > $margin_ms then
  local queue = lock_key .. ':queue'
  local waiting = pcall('ZRANGE', queue, '0', '1')
  local head, second = waiting[1], waiting[2]
  local tombstones = mark == '-' and pcall('ZCARD', lock_key .. ':gone') or 0
  -- The flag stays while there are tombstones.
  if tombstones == 0 then
    mark = '+'
  end
  -- If all waiters have left, deleting the lock key is enough. Shared holds next to an exclusive
  -- hold stem from a lost lock key, and the long path removes them.
  if not head and mark == '+' and call('EXISTS', queue, lock_key .. ':holds', lock_key .. ':reduced') == 0 then
    return call('DEL', lock_key)
  end
  local lease, most
  if head and type(tombstones) == 'number' then
    lease, most = string.match(head, '^:%d+:([1-9]%d*):w(/?%d*):', $node_colon)
    lease = (most == '' or most and string.sub(most, 1, 1) == '/') and tonumber(lease)
  end
  if lease then
    local is_alive, channel = string.sub(head, 1, $node_end) == string.sub(member, 1, $node_end), nil
    if not is_alive and string.sub(head, 1, 2) == '~2' then
      local of = string.sub(head, 3, $node_end)
      channel = (ARGV[4] or '$usual_prefix') .. ':grants:' .. of
      is_alive = call('EXISTS', lock_key .. ':patience:' .. of) == 1 and call('PUBSUB', 'NUMSUB', channel)[2] > 0
    end
    -- The head forms a batch with the members behind it that differ only in their ids. These are
    -- read only if the second member is of the same node.
    local batch, numbers = '', nil
    local limit = most ~= '' and second and tonumber(string.sub(most, 2))
    if is_alive and limit and limit > 1 and string.sub(second, 1, $node_colon) == string.sub(head, 1, $node_colon) then
      waiting = call('ZRANGE', queue, '0', limit - 1)
      local of, tail = string.sub(head, 1, $node_colon), string.match(head, '^%d+(:.*)$', $number_at)
      numbers = {}
      for i, next in ipairs(waiting) do
        local number = string.match(next, '^%d+', $number_at)
        if not number or next ~= of .. number .. tail then
          break
        end
        numbers[i] = number
      end
      draws = #numbers
      if draws > 1 then
        batch = '\n' .. table.concat(numbers, ' ')
      else
        numbers = nil
      end
    end
    -- Redis refuses INCR when memory is full. Then the long path is taken, whose first write Redis
    -- allows.
    drawn = is_alive and tonumber(numbers and pcall('INCRBY', KEYS[2], draws) or pcall('INCR', KEYS[2]))
    local ahead = drawn and drawn - ARGV[2] - draws + 1
    if ahead and ahead > 0 and drawn < $token_limit then
      local claim = lease >= $long_lease_ms and $max_claim_ms or math.min(lease, math.max(math.floor(lease / $claims_per_lease), $min_claim_ms))
      if numbers then
        call('ZREMRANGEBYRANK', queue, '0', draws - 1)
      else
        call('ZREM', queue, head)
      end
      call('PSETEX', lock_key, lease >= $long_lease_ms and '$max_handed_ms' or claim + $margin_ms, mark .. head .. batch)
      local token = drawn - draws + 1
      if not channel then
        return string.format('%d', token) .. head .. batch
      end
      if numbers then
        local text = string.format('w %d %d ', token, claim)
        call('PUBLISH', channel, text .. string.sub(batch, 2))
      else
        local number = string.match(head, '^:(%d+)', $node_colon)
        call('PUBLISH', channel, string.format('p %d %s %d', token, number, claim))
      end
      return 2
    end
  end
end

--#include queue/put_back

local counter, node = KEYS[2], string.sub(member, 3, $node_end)
local token_floor, elsewhere, prefix = tonumber(ARGV[2]), tonumber(ARGV[3] or 0), ARGV[4] or '$usual_prefix'

-- A separate function, so that the short paths above do not pay for its many variables.
return (function()
--#include queue/drop
end)()
