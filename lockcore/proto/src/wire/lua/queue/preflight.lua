-- Runs every command that the other scripts need, on keys of its own, and leaves nothing. KEYS: a
-- door that nothing else uses, counter of tokens; or none, and they follow the prefix: then the
-- server cannot refuse all for the sake of one. ARGV: node, prefix. Answers two lists: the
-- refusals, as right, error, key or channel, one after the other; and of the rights that are worth
-- having those that are there, or false before 7.0, where no script can know.
local keys = #KEYS > 0 and KEYS or { unpack(ARGV, 3) }
local door, counter = keys[1], keys[2]
local set, grants = door .. ':queue', ARGV[2] .. ':grants:' .. ARGV[1]

--#include preflight/try

-- A number that is drawn and given back: the counter is as it was.
local drawn = try('INCR', counter)
if drawn == 1 then
  try('DEL', counter)
elseif type(drawn) == 'number' then
  try('DECRBY', counter, 1)
end
try('GET', counter)
try('SET', door, '1', 'PX', $tried_ms)
try('PSETEX', door, $tried_ms, '1')
try('INCR', door)
try('INCRBY', door, 1)
try('DECRBY', door, 2)
try('GET', door)
try('TYPE', door)
try('PTTL', door)
try('EXISTS', door)
try('PEXPIRE', door, $tried_ms)
try('ZADD', set, 1, 'preflight')
for _, command in ipairs({ 'ZSCORE', 'ZMSCORE', 'ZRANK' }) do
  try(command, set, 'preflight')
end
try('ZCARD', set)
try('ZRANGE', set, 0, 0)
try('ZRANGEBYSCORE', set, 1, 2)
try('ZREMRANGEBYRANK', set, 1, 1)
try('ZREMRANGEBYSCORE', set, 2, 3)
try('PEXPIREAT', set, '1')
try('ZREM', set, 'preflight')
try('TIME')
try('PUBLISH', grants, '')
try('PUBSUB', 'NUMSUB', grants)
try('DEL', door)
try('DEL', set)

--#include preflight/extras
