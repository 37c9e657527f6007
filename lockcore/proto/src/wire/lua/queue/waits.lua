-- A queue is only trusted if the lock key has a flag. Otherwise it belongs to another program, or
-- the flag was lost.
local is_lock = is_waited or size == 0 and string.match(text, '^~2[^:]*():%d+:[1-9]%d*:w[:/]') == $node_colon
-- A short reply has no room for a position of 2^20. The waiters in a batch are few beside that.
waits = is_lock and size and size < $positions / 2 and left > 0 and left < $exact_left_ms
if waits and size > 0 then
  waits = string.match(call('ZRANGE', queue, '0', '0')[1], '^~2[^:]*():%d+:[1-9]%d*:[rw%d]') == $node_colon
end
