-- The long path of a release. Needs `member`, besides the variables for `common`.

--#include queue/state
return (function()
--#include queue/common

asked = member
read_and_repair()
if foreign_key then
  return foreign_key
end
local is_there = take_any(member)
--#include queue/settle
return full_reply(is_there and 'released' or 'not_held', 0)
end)()
