-- For scripts that run on several locks, one after the other. They have a KEYS of their own.

-- From here on it is about the lock with these keys, of which nothing is known yet.
local function turn_to(keys)
  KEYS = keys
  holder, left, token, passed_over = false, 0, false, 0
  head, previous, leftovers, strange = nil, nil, nil, nil
  alive, arrivals, suspects = keys[5], keys[6], keys[7]
  is_suspicious, gone = nil, nil
end

-- What is strange at one lock is told of that lock: an error in the answer would be the answer to
-- all.
local function told_apart()
  return { strange.err }
end
