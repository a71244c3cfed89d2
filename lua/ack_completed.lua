-- Script:  ack_completed
-- Version: 3
-- Args:    now (id token worker summary has_exit exit delay_ms)*
-- Moves:   active -> completed
-- Returns: ok, then a word an item: completed | retried | failed | cancelled | released | lost | not_found
-- Events:  done (awaited jobs)
--
-- Atomic because the token is checked in the step that stores the result: a worker whose lock moved on
-- can no longer clobber what the new holder does. A pending cancel loses against a result that exists.
-- include: ack
return ack_all(function(job, item)
  local set = ended_run(job, item, 'completed')
  local unset = let_go(job, set, 'completed')
  unset[#unset + 1] = 'error'
  finish(job, 'completed', set, unset)
  return 'completed'
end)
