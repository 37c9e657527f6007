-- Tries the rights to every command that the other scripts need, on keys of its own, which it
-- deletes. KEYS: an otherwise unused lock key, token counter. Instead, both may follow the prefix
-- in ARGV; then the server cannot refuse the whole script for a single key. ARGV: node, channel
-- prefix. Replies two lists: the refusals, each as right, error, and key or channel; and the
-- optional rights that the user has. The second is false before Redis 7.0, where scripts cannot
-- know.
local keys = #KEYS > 0 and KEYS or { unpack(ARGV, 3) }
local lock_key, counter = keys[1], keys[2]
local set, grants = lock_key .. ':queue', ARGV[2] .. ':grants:' .. ARGV[1]

--#include preflight/try

-- A number is drawn and put back, so that the counter does not change.
local drawn = try('INCR', counter)
if drawn == 1 then
  try('DEL', counter)
elseif type(drawn) == 'number' then
  try('DECRBY', counter, 1)
end
try('GET', counter)
try('SET', lock_key, '1', 'PX', $tried_ms)
try('PSETEX', lock_key, $tried_ms, '1')
try('INCR', lock_key)
try('INCRBY', lock_key, 1)
try('DECRBY', lock_key, 2)
try('GET', lock_key)
try('TYPE', lock_key)
try('PTTL', lock_key)
try('EXISTS', lock_key)
try('PEXPIRE', lock_key, $tried_ms)
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
try('DEL', lock_key)
try('DEL', set)

--#include preflight/extras
