local may = redis.acl_check_cmd
if not may then
  return { refused, false }
end
-- These commands are not run by a script, but a connection may need them.
for _, command in ipairs({ { 'EVAL', '', '0' }, { 'PING' } }) do
  local known, allowed = pcall(may, unpack(command))
  if not (known and allowed) then
    note(string.lower(command[1]), known and 'NOPERM' or 'unknown command', '')
  end
end
local extras = {}
for _, command in ipairs({
  { 'INFO' }, { 'SCRIPT', 'LOAD', '' }, { 'CLIENT', 'INFO' }, { 'CLIENT', 'KILL', 'ID', '1' },
  { 'CLIENT', 'SETINFO', 'LIB-NAME', '' }, { 'MULTI' }, { 'EXEC' },
  { 'WAITAOF', '1', '0', '1', name = 'waitaof' },
  { 'DELIFEQ', keys[1], '', name = 'delifeq' }, { 'DELEX', keys[1], 'IFEQ', '', name = 'delex' },
  { 'SET', 'lock:node:' .. ARGV[1], '', name = 'node' },
}) do
  local known, allowed = pcall(may, unpack(command))
  if known and allowed then
    local name = command.name or command[1] .. (command[2] and '|' .. command[2] or '')
    extras[#extras + 1] = string.lower(name)
  end
end
return { refused, extras }
