hand_on()
if foreign_key then
  return foreign_key
end
write()
