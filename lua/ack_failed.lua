-- Script:  ack_failed
-- Version: 3
-- Args:    now (id token worker summary has_exit exit delay_ms)*
-- Moves:   active -> failed
-- Returns: ok, then a word an item: failed | completed | retried | cancelled | released | lost | not_found
-- Events:  done (awaited jobs)
--
-- Atomic because the last failure, its ledger entry and the end of the job are one fact. A final failure
-- wins over a pending cancel: the run did end, and that is what is told.
-- include: ack
return ack_all(function(job, item)
  local set = ended_run(job, item, 'failed')
  finish(job, 'failed', set, let_go(job, set, 'failed'))
  return 'failed'
end)
