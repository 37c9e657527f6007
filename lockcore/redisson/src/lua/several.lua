-- For scripts that run on several locks in sequence. They define a separate KEYS.

-- Selects the lock with these keys, whose state is not known yet.
local function select_lock(keys)
  KEYS = keys
  holder, left, token, skipped = false, 0, false, 0
  head, previous, leftovers, foreign_key = nil, nil, nil, nil
  alive, arrivals, suspects = keys[5], keys[6], keys[7]
  is_suspicious, gone = nil, nil
end

-- Returns the error for a foreign key as a reply for this lock: a bare error would be the reply for
-- all.
local function error_for_lock()
  return { foreign_key.err }
end
