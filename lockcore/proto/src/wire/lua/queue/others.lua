-- Counts the waiters in the batch that has the lock: all but the first, each behind a space.
while at do
  others, at = others + 1, string.find(text, ' ', at + 1, true)
end
