-- Flags the lock key behind which all are queued, and returns the first position.
if not is_waited then
  call('PSETEX', lock_key, left + $margin_ms, '+' .. text)
end
return left * $positions + size + others
