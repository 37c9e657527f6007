-- Renews the node's liveness deadline, and the queue with it, if little is left. Expects:
-- `patient`, ms.
if patient < $fresh_ms then
  call('PSETEX', patience, '$patience_ms', '1')
  call('PEXPIRE', queue, '$waiting_ttl_ms')
elseif size == 0 then
  call('PEXPIRE', queue, '$waiting_ttl_ms')
end
