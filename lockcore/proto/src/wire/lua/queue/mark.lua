-- Reads the identity record of a quorum primary. If the record or the token counter of its epoch is
-- missing, the server was emptied. Then both are written together, so that no counter belongs to an
-- earlier epoch. If the record has another run of the server, this is the first contact in the
-- present run, and is recorded. KEYS: record. ARGV: the server's run; an empty text writes nothing.
-- Then what to write in place of a missing record: `new` for a server that has granted nothing,
-- `used` for any other, and an empty text for no record. Then the part of the record on which all
-- processes agree, and the prefix of the counters' names. Replies the record, or nil.
local call, text = redis.call, redis.call('GET', KEYS[1])
local written, run, agreed = string.match(text or '', '^(%d+) (%S+) %d+ (.*)$')
local count = written and tonumber(redis.pcall('GET', ARGV[4] .. written))
local is_kept = count and count > $lost_counter
-- A run has a longer text while the server has an earlier replication history.
local is_same_run = is_kept and string.sub(run, 1, #ARGV[1]) == ARGV[1]
if text and agreed ~= ARGV[3] or is_same_run then
  return text
end
if not is_kept and ARGV[2] == '' then
  return false
end
--#include clock
local since = clock
if not is_kept then
  written = clock
  call('SET', ARGV[4] .. written, written)
  since = ARGV[2] == 'new' and '0' or clock
end
text = written .. ' ' .. ARGV[1] .. ' ' .. since .. ' ' .. ARGV[3]
call('SET', KEYS[1], text)
return text
