-- Puts back unused numbers. A counter that did not exist is deleted: it is no basis for the next.
if drawn == draws then
  redis.call('DEL', KEYS[2])
elseif drawn then
  redis.call('DECRBY', KEYS[2], draws)
end
