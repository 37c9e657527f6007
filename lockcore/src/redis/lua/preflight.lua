-- Runs every command that the other scripts need, on keys that nobody else uses, and leaves nothing.
-- KEYS: as acquire. ARGV: node, prefix. Answers what was refused: command and error, one after the other.
local refused = {}
local function try(command, ...)
  local answer = redis.pcall(command, ...)
  if type(answer) == 'table' and answer.err then
    refused[#refused + 1] = command
    refused[#refused + 1] = answer.err
  end
end

try('HDEL', KEYS[1], '')
try('SET', KEYS[4], '1', 'PX', 60000)
try('HSET', KEYS[1], 'preflight', 1)
try('PEXPIRE', KEYS[1], 1000)
try('PEXPIREAT', KEYS[1], '1')
try('HRANDFIELD', KEYS[1], 2, 'WITHVALUES')
try('TYPE', KEYS[1])
try('PTTL', KEYS[1])
try('EXISTS', KEYS[1], KEYS[2], KEYS[5])
try('GET', KEYS[4])
try('ZADD', KEYS[3], 1, 'preflight')
for _, command in ipairs({ 'ZSCORE', 'ZMSCORE' }) do
  try(command, KEYS[3], 'preflight')
end
try('ZCARD', KEYS[3])
try('ZCOUNT', KEYS[3], 1, 2)
try('ZRANGEBYSCORE', KEYS[3], 1, 2)
try('ZREVRANGE', KEYS[3], 0, 0)
try('ZREM', KEYS[3], 'preflight')
try('RPUSH', KEYS[2], 'preflight')
try('LINDEX', KEYS[2], 0)
try('LRANGE', KEYS[2], 0, 0)
try('LPOS', KEYS[2], 'preflight')
try('LREM', KEYS[2], 1, 'preflight')
try('LPOP', KEYS[2])
try('PERSIST', KEYS[2])
try('TIME')
try('PUBLISH', ARGV[2] .. ':grants:' .. ARGV[1], '')
--#if peers
try('LPUSH', KEYS[2], 'preflight')
try('LLEN', KEYS[2])
for i = #KEYS - 1, #KEYS do
  try('DEL', KEYS[i])
end
try('PUBLISH', 'redisson_lock__channel:preflight', '0')
--#end
try('PUBSUB', 'NUMSUB', ARGV[2] .. ':grants:' .. ARGV[1])
try('DEL', KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5])
return refused
