-- The queue is full, and must not be scanned again so soon.
local is_refused = queue_limit == 0 or pcall('EXISTS', lock_key .. ':swept') == 1
if is_refused and (size == 0 or pcall('ZSCORE', queue, member) == false) then
  return queue_limit == 0 and member or 'f' .. size + others .. member
end
