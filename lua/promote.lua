-- Script:  promote
-- Version: 1
-- Args:    now nonce id*
-- Moves:   delayed -> waiting
-- Returns: ok, then for each id: promoted | not_promotable | not_found, and its state or ''
-- Events:  wake
--
-- Atomic because a job that falls due at the same moment is promoted by a claim or by this call, never
-- by both. It keeps its place in line; `run_at` becomes this instant.
-- include: steer
return steer('promote_nonce', function(job, answered)
  if job.state ~= 'delayed' then return 'not_promotable' end
  job.run_at = NOW_TEXT
  move(job, 'waiting', answered('promoted', { 'run_at', NOW_TEXT }))
  return 'promoted'
end)
