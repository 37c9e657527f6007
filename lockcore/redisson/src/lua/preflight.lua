-- Runs every command used by the other scripts on separate keys, and leaves nothing behind.
-- KEYS: as acquire; or none, with the keys after the prefix: then a single key cannot make the
-- server refuse all.
-- ARGV: node, prefix. Returns two lists: the refusals, as right, error, key or channel, one after
-- the other; and the optional rights that are present, or false before 7.0, where no script can
-- check.
local keys = #KEYS > 0 and KEYS or { unpack(ARGV, 3) }
local grants = ARGV[2] .. ':grants:' .. ARGV[1]

--#include preflight/try

try('HDEL', keys[1], '')
try('SET', keys[4], '1', 'PX', $tried_ms)
try('HSET', keys[1], 'preflight', 1)
try('PEXPIRE', keys[1], 1000)
try('PEXPIREAT', keys[1], '1')
try('HRANDFIELD', keys[1], 2, 'WITHVALUES')
try('TYPE', keys[1])
try('PTTL', keys[1])
for i = 1, 5 do
  try('EXISTS', keys[i])
end
try('GET', keys[4])
try('ZADD', keys[3], 1, 'preflight')
for _, command in ipairs({ 'ZSCORE', 'ZMSCORE' }) do
  try(command, keys[3], 'preflight')
end
try('ZCARD', keys[3])
try('ZCOUNT', keys[3], 1, 2)
try('ZRANGEBYSCORE', keys[3], 1, 2)
try('ZREVRANGE', keys[3], 0, 0)
try('ZREM', keys[3], 'preflight')
try('RPUSH', keys[2], 'preflight')
try('LINDEX', keys[2], 0)
try('LRANGE', keys[2], 0, 0)
try('LPOS', keys[2], 'preflight')
try('LREM', keys[2], 1, 'preflight')
try('LPOP', keys[2])
try('PERSIST', keys[2])
try('TIME')
try('PUBLISH', grants, '')
try('LPUSH', keys[2], 'preflight')
try('LLEN', keys[2])
try('PUBLISH', 'redisson_lock__channel:preflight', '0')
try('PUBSUB', 'NUMSUB', grants)
for i = 1, #keys do
  try('DEL', keys[i])
end

--#include preflight/extras
