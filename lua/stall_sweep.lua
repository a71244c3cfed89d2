-- Script:  stall_sweep
-- Version: 3
-- Args:    now max_stalled limit
-- Moves:   active -> waiting | failed | cancelled
-- Returns: ok, then for each job: id, requeued | failed | cancelled, queue, name, worker, processed_at
-- Events:  wake, done (awaited jobs that finished)
--
-- Atomic because expiry is judged and acted on in one step: a lock extended a moment ago, or a job claimed
-- again, can never be swept by mistake. A pending cancel is honoured first; stalls have a counter of their
-- own and never touch the budget.
-- include: lock
local max_stalled = tonumber(ARGV[2])
local expired =
  redis.call('ZRANGE', ACTIVE_KEY, '-inf', NOW_TEXT, 'BYSCORE', 'LIMIT', '0', ARGV[3])
local list = {}
for i, id in ipairs(expired) do list[i] = load_job(id) end
local _, refusal = open_store(queues_of(list))
if refusal then return refusal end

-- The landed token stays: an ack repeated after its job stalled in a later run is still recognised.
local function recover(job)
  local set, unset = {}, { 'token', 'worker', 'cancel_requested' }
  if job.cancel_requested then return land_cancelled(job, set, unset, job.worker) end
  local stalls = count_of(job, 'stalled_count') + 1
  append_run(job, set, 'stalled', job.processed_at, job.worker, nil)
  set[#set + 1] = 'stalled_count'
  set[#set + 1] = text(stalls)
  if stalls > max_stalled then
    job.failed_reason = 'stalls: ' .. text(stalls) .. ', allowed: ' .. text(max_stalled)
    set[#set + 1] = 'failed_reason'
    set[#set + 1] = job.failed_reason
    finish(job, 'failed', set, unset)
    return 'failed'
  end
  move(job, 'waiting', set, unset)
  return 'requeued'
end

local reply = { 'ok' }
for i, id in ipairs(expired) do
  local job = list[i]
  if job and job.state == 'active' then
    local told = { id, '', job.queue, job.name, job.worker or '', job.processed_at }
    told[2] = recover(job)
    for _, value in ipairs(told) do reply[#reply + 1] = value end
  else
    -- A lock without a job (its record was deleted by hand or evicted) is not worth a second look.
    redis.call('ZREM', ACTIVE_KEY, id)
  end
end
apply_moves()
return reply
