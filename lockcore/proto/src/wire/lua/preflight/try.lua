-- Runs a command, and records the missing right if the server refuses it.
local refused = {}
local function note(right, error, object)
  refused[#refused + 1] = right
  refused[#refused + 1] = error
  refused[#refused + 1] = object
end
local function try(command, ...)
  local answer = redis.pcall(command, ...)
  if type(answer) == 'table' and answer.err then
    local right = command == 'PUBSUB' and 'pubsub|numsub' or string.lower(command)
    note(right, answer.err, command == 'PUBSUB' and '' or ... or '')
  end
  return answer
end
