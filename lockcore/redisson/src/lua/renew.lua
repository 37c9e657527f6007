-- KEYS: hold and token of each lock. ARGV: node, prefix, then member and lease for each lock, last
-- the latest time.
-- Returns the clock, then for each lock: `<token><member>` if the lease was extended; `<member>` if
-- not held; else a full reply, or a list with the error for a foreign key. Nothing that may fail
-- comes between a lock's first write and last write.
local call, pcall = redis.call, redis.pcall
local KEYS = KEYS

--#include clock

local locks, answers, others = KEYS, { clock }, {}
for i = 1, #locks / 2 do
  local hold, token, member, lease = locks[2 * i - 1], locks[2 * i], ARGV[2 * i + 1], ARGV[2 * i + 2]
  local fields, last = pcall('HRANDFIELD', hold, '2', 'WITHVALUES'), pcall('GET', token)
  local is_token = type(last) == 'string' and string.match(last, '^[1-9]%d*$') and tonumber(last) < $greatest_token
  if is_token and fields[1] == member and fields[2] == '1' and not fields[3] then
    call('PEXPIRE', hold, lease)
    answers[i + 1] = last .. member
  elseif (is_token or not last) and not fields[1] and not fields.err then
    -- This changes nothing. Redis refuses it on a replica, which may lack a hold of its primary.
    call('DEL', hold)
    answers[i + 1] = member
  else
    others[#others + 1] = i
  end
end
if not others[1] then
  return answers
end

--#include redisson/common
--#include redisson/several

local function renew(member, lease)
  asked = member
  look_at_holder()
  look_at_token()
  if foreign_key then
    return error_for_lock()
  end
  if holder ~= member then
    return full_reply('not_held', 0)
  end
  call('PEXPIRE', KEYS[1], lease)
  left = tonumber(lease)
  return full_reply('held', 0)
end

for _, i in ipairs(others) do
  select_lock({ locks[2 * i - 1], false, false, locks[2 * i] })
  answers[i + 1] = renew(ARGV[2 * i + 1], ARGV[2 * i + 2])
end
return answers
