-- Script:  retry
-- Version: 3
-- Args:    now nonce states id*
-- Moves:   failed -> waiting
-- Returns: ok, then for each id: retried | not_retryable | changed | not_found, and its state or ''
-- Events:  wake
--
-- Atomic because a failed job gets its fresh budget and its place in line in one step: asked for twice, it
-- is revived once. The ledger stays and its numbering goes on.
-- include: steer
local RESET = {
  'attempts_made', 'stalled_count', 'processed_at', 'cancel_requested', 'finished_at', 'error',
  'failed_reason',
}

return steer('retry_nonce', { failed = true }, 'not_retryable', function(job, answered)
  job.seq, job.run_at = next_seq(), NOW_TEXT
  move(job, 'waiting', answered('retried', { 'seq', job.seq, 'run_at', NOW_TEXT }), RESET)
  return 'retried'
end)
