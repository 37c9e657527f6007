-- Renews the hold of `member` to the full `lease`. Sets `letter` to the outcome: h(eld) or n(ot
-- held).
local letter = 'n'
if whole then
  if whole == member then
    whole_left, is_whole_new, letter = lease, true, 'h'
  end
elseif tonumber(call('ZSCORE', H, member) or 0) > now then
  held[#held + 1] = text_of(now + lease)
  held[#held + 1] = member
  keep_until(now + lease)
  letter = 'h'
end
