-- Script:  promote
-- Version: 2
-- Args:    now nonce states id*
-- Moves:   delayed -> waiting
-- Returns: ok, then for each id: promoted | not_promotable | changed | not_found, and its state or ''
-- Events:  wake
--
-- Atomic because a job that falls due at the same moment is promoted by a claim or by this call, never
-- by both. It keeps its place in line; `run_at` becomes this instant.
-- include: steer
return steer('promote_nonce', { delayed = true }, 'not_promotable', function(job, answered)
  job.run_at = NOW_TEXT
  move(job, 'waiting', answered('promoted', { 'run_at', NOW_TEXT }))
  return 'promoted'
end)
