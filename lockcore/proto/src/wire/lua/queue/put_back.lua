-- Numbers that were drawn and not used go back: one that was lost is no measure of the next.
if drawn == draws then
  redis.call('DEL', KEYS[2])
elseif drawn then
  redis.call('DECRBY', KEYS[2], draws)
end
