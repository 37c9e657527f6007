-- KEYS[1] the record; ARGV[1] maximum bytes of a field
-- Returns nothing without a record; 'large'; or 'record' and its fields.
if redis.call('EXISTS', KEYS[1]) == 0 then
    return {}
end
local fields = {'version', 'fingerprint', 'token', 'started', 'outcome'}
for _, field in ipairs(fields) do
    -- A field that is too large is not read at all.
    if redis.call('HSTRLEN', KEYS[1], field) > tonumber(ARGV[1]) then
        return {'large'}
    end
end
return {'record', unpack(redis.call('HMGET', KEYS[1], unpack(fields)))}
