-- Which of the keys, by its name up to the lock's, is another program's, and of which type it is.
local function refuse(which, type_of)
  strange = strange or redis.error_reply('WRONGTYPE ' .. which .. ' ' .. type_of)
end

-- A read of a key that may be another program's, and then of another type.
local function read(which, command, key, ...)
  local answer = redis.pcall(command, key, ...)
  if type(answer) ~= 'table' or not answer.err then
    return answer
  end
  if string.find(answer.err, 'WRONGTYPE', 1, true) then
    refuse(which, redis.pcall('TYPE', key).ok or 'another type')
  end
  strange = strange or answer
end
