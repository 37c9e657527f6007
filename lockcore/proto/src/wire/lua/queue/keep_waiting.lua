-- Renews the node's liveness deadline and the queue's expiry, if little time is left. Needs
-- `patient`, the ms left of the deadline.
if patient < $fresh_ms then
  call('PSETEX', patience, '$patience_ms', '1')
  call('PEXPIRE', queue, '$waiting_ttl_ms')
elseif size == 0 then
  call('PEXPIRE', queue, '$waiting_ttl_ms')
end
