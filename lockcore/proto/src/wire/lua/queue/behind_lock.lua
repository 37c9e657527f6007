-- Returns the ms left of an exclusive lease, and the lock key's text, if all of these members of
-- the node wait behind it. Then nothing is free, nothing has expired, and no member holds or was
-- skipped. Returns nothing otherwise. The members are in ARGV from index `first` on, one every
-- `step` arguments.
-- Pays: "5 000 holds and a waiter for each" in docs/performance/costs.md.
local function left_behind_lock(first, step)
  local held = pcall('GET', lock_key)
  if type(held) ~= 'string' or not string.find(held, '^[+-]~2') then
    return
  end
  local left = call('PTTL', lock_key) - $margin_ms
  if left <= 0 or left >= $exact_left_ms or call('EXISTS', lock_key .. ':passed:' .. node) == 1 then
    return
  end
  for i = first, #ARGV, step do
    if type(pcall('ZSCORE', lock_key .. ':queue', ARGV[i])) ~= 'string' then
      return
    end
  end
  return left, held
end
