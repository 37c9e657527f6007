-- A number that was drawn and not used goes back: one that was lost is no measure of the next.
if drawn == 1 then
  redis.call('DEL', KEYS[2])
elseif drawn then
  redis.call('DECR', KEYS[2])
end
