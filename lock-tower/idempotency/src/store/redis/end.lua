-- KEYS[1] the record; ARGV[1] token
local record = redis.call('HMGET', KEYS[1], 'version', 'token', 'outcome')
if record[1] == '1' and record[2] == ARGV[1] and not record[3] then
    redis.call('DEL', KEYS[1])
end
return 'done'
