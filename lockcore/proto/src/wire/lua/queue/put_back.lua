-- Puts numbers back that were drawn from the token counter but not used. A counter that did not
-- exist before is deleted, because tokens must not continue from it.
if drawn == draws then
  redis.call('DEL', KEYS[2])
elseif drawn then
  redis.call('DECRBY', KEYS[2], draws)
end
