-- Ends a command: grants the free weight to waiters, then writes.
hand_on()
if foreign_key then
  return foreign_key
end
write()
