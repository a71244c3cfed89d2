-- Script:  watch
-- Version: 2
-- Args:    now id
-- Moves:   - (marks the record as awaited)
-- Returns: awaited | finished | not_found
-- Events:  -
--
-- Atomic because the state is read in the step that leaves the mark: a job cannot finish between the
-- two and leave its waiter unheard. Only a marked job pays for a PUBLISH when it ends.
-- include: job
-- include: meta
local _, refusal = open_store({})
if refusal then return refusal end

local job = load_job(ARGV[2])
if not job then return { 'not_found' } end
if job.state == 'completed' or job.state == 'failed' or job.state == 'cancelled' then
  return { 'finished' }
end
-- HSET may grow memory: behind a ZREM a full server accepts it.
redis.call('ZREM', ACTIVE_KEY, '')
redis.call('HSET', job_key(job.id), 'awaited', '1')
return { 'awaited' }
