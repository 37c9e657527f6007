-- Counts the waiters in the batch that has the lock. In the text, a space is in front of each
-- member id except the first, which is served.
while at do
  others, at = others + 1, string.find(text, ' ', at + 1, true)
end
