-- A whole record as a reply: the fields as they were read, in the order of mq/records.py, then the
-- payload and the extra hash. Included by what hands records out; it widens the one HMGET that a job
-- costs.
-- include: job
for _, field in ipairs({
  'finished_at', 'attempts_max', 'backoff', 'timeout_ms', 'error', 'failed_reason', 'extra',
}) do
  read_too(field)
end

local function record_of(job, payload)
  local extra = job.extra and redis.call('HGETALL', extra_key(job.id)) or {}
  return { job.id, job.found, payload, extra }
end
