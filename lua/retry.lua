-- Script:  retry
-- Version: 1
-- Args:    now nonce id*
-- Moves:   failed -> waiting
-- Returns: ok, then for each id: retried | not_retryable | not_found, and the state it was found in or ''
-- Events:  wake
--
-- Atomic because a failed job gets its fresh budget and its place in line in one step: asked for twice, it
-- is revived once. The ledger stays and its numbering goes on. A job whose nonce stands on the record was
-- revived by this same call, sent again because its reply was lost.
-- include: clock
-- include: move
local nonce = ARGV[2]
JOB_FIELDS[#JOB_FIELDS + 1] = 'retry_nonce'
FIELD_AT.retry_nonce = #JOB_FIELDS

local list = {}
for i = 3, #ARGV do list[#list + 1] = load_job(ARGV[i]) end
local _, refusal = open_store(queues_of(list))
if refusal then return refusal end

local RESET = {
  'attempts_made', 'stalled_count', 'processed_at', 'cancel_requested', 'finished_at', 'error',
  'failed_reason',
}

local function revive(job)
  job.seq, job.run_at = next_seq(), NOW_TEXT
  local set = { 'seq', job.seq, 'run_at', NOW_TEXT, 'retry_nonce', nonce }
  move(job, 'waiting', set, RESET)
end

local reply = { 'ok' }
for i = 3, #ARGV do
  local job = load_job(ARGV[i])
  local word, state = 'not_found', ''
  if job then
    word, state = 'not_retryable', job.state
    if job.state == 'failed' then
      revive(job)
      job.retry_nonce = nonce
      word = 'retried'
    elseif job.retry_nonce == nonce then
      word = 'retried'
    end
  end
  reply[#reply + 1] = word
  reply[#reply + 1] = state
end
apply_moves()
return reply
