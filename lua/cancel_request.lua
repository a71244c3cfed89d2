-- Script:  cancel_request
-- Version: 2
-- Args:    now nonce states id*
-- Moves:   waiting -> cancelled, delayed -> cancelled, waiting-children -> cancelled, active -> active
-- Returns: ok, then for each id: cancelled | cancel_requested | not_cancellable | changed | not_found, and its state
-- Events:  control (the worker that holds it), done (awaited jobs that were cancelled)
--
-- Atomic because a job is either taken out of line or flagged, and no claim can come between: it never
-- starts after its cancel was answered. A flag is seen by every later step of the run that could revive
-- the job (ack_retried, release, stall_sweep); the worker hears of it by the push, which its listener
-- takes, or by its next heartbeat, and ends the run with ack_cancelled.
-- include: cancel
-- include: steer
local PENDING = { waiting = true, delayed = true, active = true, ['waiting-children'] = true }

return steer('cancel_nonce', PENDING, 'not_cancellable', cancel)
