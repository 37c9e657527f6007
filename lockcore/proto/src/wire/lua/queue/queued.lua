-- Sets the flag in the lock key of an exclusive hold, and returns the position of the first queued
-- member together with the ms left.
if not is_waited then
  call('PSETEX', lock_key, left + $margin_ms, '+' .. text)
end
return left * $positions + size + others
