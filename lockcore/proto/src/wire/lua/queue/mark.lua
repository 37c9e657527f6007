-- Reads the identity record of a quorum primary. If the record or the token counter of its epoch is
-- missing, the server was emptied. Then both are written together, so that no counter belongs to an
-- earlier epoch. KEYS: record. ARGV: the server run in which the record is new, or `-`; an empty
-- text writes no record. Then the part of the record on which all processes agree, and the prefix
-- of the counters' names. Replies the record, or nil.
local call, text = redis.call, redis.call('GET', KEYS[1])
local written, agreed = string.match(text or '', '^(%d+) %S+ (.*)$')
local count = written and tonumber(redis.pcall('GET', ARGV[3] .. written))
if text and agreed ~= ARGV[2] or count and count > $lost_counter then
  return text
end
if ARGV[1] == '' then
  return false
end
--#include clock
text = clock .. ' ' .. ARGV[1] .. ' ' .. ARGV[2]
call('SET', ARGV[3] .. clock, clock)
call('SET', KEYS[1], text)
return text
