-- Reads a record once per call. A second item of the same batch that names the same job sees what
-- the first one decided, because both hold the same table.
-- include: keys
local JOB_FIELDS = {
  'state', 'queue', 'name', 'priority', 'seq', 'enqueued_at', 'run_at', 'token', 'worker',
  'processed_at', 'runs', 'attempts_made', 'stalled_count', 'cancel_requested', 'acked_token',
  'acked_as', 'awaited', 'dedup', 'keep', 'flow', 'child',
}
local FINISHED = { completed = true, failed = true, cancelled = true }
local jobs = {}

-- A field is looked up in the reply of its HMGET until something sets it: copying two dozen fields
-- into a table for each job costs more than all the commands of a claim.
local FIELD_AT = {}
local JOB = {
  __index = function(job, field)
    local at = FIELD_AT[field]
    return at and job.found[at]
  end,
}

-- Returns the job as a table of its fields (absent ones are false), or false for no record.
local function load_job(id)
  local job = jobs[id]
  if job == nil then
    local found = redis.call('HMGET', job_key(id), unpack(JOB_FIELDS))
    job = found[1] and setmetatable({ id = id, found = found }, JOB)
    jobs[id] = job
  end
  return job
end

-- A number of the record; 0 when it is absent, or was made unreadable by hand: one broken record must
-- not stop the scripts that many share.
local function count_of(job, field)
  return tonumber(job[field] or 0) or 0
end

for at, field in ipairs(JOB_FIELDS) do FIELD_AT[field] = at end

-- Widens the one HMGET that a job costs by a field that this script alone needs.
local function read_too(field)
  JOB_FIELDS[#JOB_FIELDS + 1] = field
  FIELD_AT[field] = #JOB_FIELDS
end
