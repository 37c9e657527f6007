-- KEYS[1] the record; ARGV: token, expiry in ms, outcome
-- Returns 'stored', 'overtaken' or 'forgotten'.
local record = redis.call('HMGET', KEYS[1], 'version', 'token')
if redis.call('EXISTS', KEYS[1]) == 0 then
    return 'forgotten'
end
if record[1] ~= '1' or record[2] ~= ARGV[1] then
    return 'overtaken'
end
-- A repeat finds the outcome it has written.
if redis.call('HSETNX', KEYS[1], 'outcome', ARGV[3]) == 1 then
    redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return 'stored'
