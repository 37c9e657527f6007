-- Records that a key contains data of another program: `which` is the name of the key without the
-- lock's name, and `type_of` the type of the data.
local function mark_foreign(which, type_of)
  foreign_key = foreign_key or redis.error_reply('WRONGTYPE ' .. which .. ' ' .. type_of)
end

-- Runs a read command on a key that may belong to another program, and so may have another type.
local function read(which, command, key, ...)
  local answer = redis.pcall(command, key, ...)
  if type(answer) ~= 'table' or not answer.err then
    return answer
  end
  if string.find(answer.err, 'WRONGTYPE', 1, true) then
    mark_foreign(which, redis.pcall('TYPE', key).ok or 'another type')
  end
  foreign_key = foreign_key or answer
end
