-- Script:  release
-- Version: 3
-- Args:    now (id token)*
-- Moves:   active -> waiting | cancelled
-- Returns: ok, then a word an item: released | cancelled | completed | retried | failed | lost | not_found
-- Events:  wake, done (awaited jobs that were cancelled)
--
-- Atomic because a worker that shuts down gives the job back in the step that drops its lock: runnable
-- elsewhere at once, at its old place, no attempt spent. A cancel that is pending lands instead.
-- include: lock
local list = {}
for i = 2, #ARGV, 2 do list[#list + 1] = load_job(ARGV[i]) end
local _, refusal = open_store(queues_of(list))
if refusal then return refusal end

local reply = { 'ok' }
for i = 2, #ARGV, 2 do
  local job, word = held(ARGV[i], ARGV[i + 1])
  if job and job.cancel_requested then
    local set, worker = {}, job.worker
    word = land_cancelled(job, set, let_go(job, set, 'cancelled'), worker)
  elseif job then
    local set = {}
    move(job, 'waiting', set, let_go(job, set, 'released'))
    word = 'released'
  end
  reply[#reply + 1] = word
end
apply_moves()
return reply
