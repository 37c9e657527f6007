-- KEYS[1] the record; ARGV: maximum bytes of a field, fingerprint, token, expiry in ms, 1 to take
-- over
-- Returns 'begun' and 1 if an earlier hold left no outcome; 'overtaken'; 'large'; or 'record' and
-- its fields. A repeat with the same token, by a client that got no reply, returns the same.
local key, token = KEYS[1], tonumber(ARGV[3])
local again = '0'
if redis.call('EXISTS', key) == 1 then
    local fields = {'version', 'fingerprint', 'token', 'started', 'outcome', 'again'}
    for _, field in ipairs(fields) do
        if redis.call('HSTRLEN', key, field) > tonumber(ARGV[1]) then
            return {'large'}
        end
    end
    local record = redis.call('HMGET', key, unpack(fields))
    local other = tonumber(record[3])
    -- The client evaluates an existing record, and refuses records not written by this version.
    if record[1] ~= '1' or record[2] ~= ARGV[2] or not other or not record[4] or record[5] then
        return {'record', unpack(record)}
    end
    if other > token then
        return {'overtaken'}
    end
    if other < token then
        if ARGV[5] ~= '1' then
            return {'record', unpack(record)}
        end
        again = '1'
    else
        again = record[6] or '0'
    end
end
local now = redis.call('TIME')
local started = now[1] * 1000 + math.floor(now[2] / 1000)
redis.call('HSET', key, 'version', '1', 'fingerprint', ARGV[2], 'token', ARGV[3],
    'started', string.format('%.0f', started), 'again', again)
redis.call('PEXPIRE', key, ARGV[4])
return {'begun', tonumber(again)}
