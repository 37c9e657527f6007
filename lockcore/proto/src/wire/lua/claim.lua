-- The claim, the short lease of a handed-off hold, in ms. Needs `lease`.
local claim = math.min(lease, math.max(math.floor(lease / $claims_per_lease), $min_claim_ms), $max_claim_ms)
