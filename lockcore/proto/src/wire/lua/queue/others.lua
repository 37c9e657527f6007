-- How many wait in the run that has the lock: all but the first, which have a space in front.
while at do
  others, at = others + 1, string.find(text, ' ', at + 1, true)
end
