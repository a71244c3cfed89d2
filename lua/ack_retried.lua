-- Script:  ack_retried
-- Version: 3
-- Args:    now (id token worker summary has_exit exit delay_ms)*
-- Moves:   active -> delayed | waiting | cancelled
-- Returns: ok, then a word an item: retried | cancelled | completed | failed | released | lost | not_found
-- Events:  wake, done (awaited jobs that were cancelled)
--
-- Atomic because a cancel that arrives while the failure travels must win: the flag is read in the same
-- step that would send the job back, so no cancelled job is ever revived by its own retry.
-- include: ack

return ack_all(function(job, item)
  if job.cancel_requested then return ack_cancel(job, item) end
  local set = ended_run(job, item, 'retried')
  local unset = let_go(job, set, 'retried')
  job.seq = next_seq()
  job.run_at = text(NOW + item.delay_ms)
  for _, value in ipairs({ 'seq', job.seq, 'run_at', job.run_at }) do set[#set + 1] = value end
  move(job, item.delay_ms > 0 and 'delayed' or 'waiting', set, unset)
  return 'retried'
end)
