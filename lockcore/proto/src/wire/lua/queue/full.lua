-- The queue is full. If it was searched for dead waiters lately, the member is refused at once.
local is_refused = queue_limit == 0 or pcall('EXISTS', lock_key .. ':swept') == 1
if is_refused and (size == 0 or pcall('ZSCORE', queue, member) == false) then
  return queue_limit == 0 and member or 'f' .. size + others .. member
end
