-- For scripts that run on several locks, one after the other. They have a KEYS of their own.

-- Selects the lock with these keys, of which nothing is known yet.
local function select_lock(keys)
  KEYS = keys
  holder, left, token, passed_over = false, 0, false, 0
  head, previous, leftovers, foreign_key = nil, nil, nil, nil
  alive, arrivals, suspects = keys[5], keys[6], keys[7]
  is_suspicious, gone = nil, nil
end

-- The error of a foreign key as the answer for its lock: an error by itself would be the answer for
-- all.
local function error_for_lock()
  return { foreign_key.err }
end
