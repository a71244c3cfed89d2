-- A whole record as a reply: the fields below in this order ('' for an absent one), which
-- mq/records.py reads by position, then the payload and the extra hash. Included by what hands records
-- out; it widens the one HMGET that a job costs.
-- include: job
for _, field in ipairs({
  'finished_at', 'attempts_max', 'backoff', 'timeout_ms', 'error', 'failed_reason', 'extra',
}) do
  JOB_FIELDS[#JOB_FIELDS + 1] = field
end

local function record_of(job, payload)
  local fields = {}
  for i, field in ipairs(JOB_FIELDS) do fields[i] = job[field] or '' end
  local extra = job.extra and redis.call('HGETALL', extra_key(job.id)) or {}
  return { job.id, fields, payload, extra }
end
