-- The long way of a release. Before it, besides what common needs: member.

--#include queue/common

look()
if strange then
  return strange
end
local is_there = take_any(member)
hand_on()
if strange then
  return strange
end
write()
return tell(is_there and 'released' or 'not_held', 0)
