-- Script:  progress
-- Version: 2
-- Args:    now id token value
-- Moves:   - (keeps what the run of an active job reports)
-- Returns: stored | lost | not_found
-- Events:  -
--
-- Atomic because progress may only be written by the run that holds the job: a stray run cannot overwrite
-- what its successor says, and a job that was removed leaves nothing behind.
-- include: job
-- include: meta
local _, refusal = open_store({})
if refusal then return refusal end

local job = load_job(ARGV[2])
if not job then return { 'not_found' } end
if job.state ~= 'active' or job.token ~= ARGV[3] then return { 'lost' } end
-- HSET may grow memory: behind a ZREM a full server accepts it.
redis.call('ZREM', ACTIVE_KEY, '')
redis.call('HSET', job_key(job.id), 'extra', '1')
redis.call('HSET', extra_key(job.id), 'progress', ARGV[4])
return { 'stored' }
