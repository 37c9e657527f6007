-- Notes since when holds are held, for inspections. Before it: `now`, `letters` of the holds, and
-- `first_age`, from where on the arguments are, of each: the index of its hold, `<node>:<number>`,
-- its age, and for how long the note is kept, ms. Nothing depends on a note, so one that is refused
-- fails no renewal.
for i = first_age, #ARGV, 4 do
  local hold = tonumber(ARGV[i])
  if string.sub(letters, hold, hold) == 'h' then
    local key, since = (KEYS[hold] or KEYS[1]) .. ':since:' .. ARGV[i + 1], now - ARGV[i + 2]
    pcall('PSETEX', key, ARGV[i + 3], string.format('%d', since))
  end
end
