-- Dedup keys, scoped by job name. A key is a hash: `id`, the job it names; `until`, the end of its
-- window, absent for a key that is live while its job is pending; `ttl`, `extend`, `replace`: the mode,
-- which the enqueue that took the key has chosen. The windows stand in one sorted set by their end.
-- include: clock
-- include: job
-- include: move

-- The key that a job was enqueued under, or false. One too long for the record stands in `extra`.
local function key_of(job)
  if not job.dedup or job.dedup_key then return job.dedup_key or false end
  if job.dedup ~= '' then return job.dedup end
  return redis.call('HGET', extra_key(job.id), 'dedup')
end

-- Frees the key of a job that is no longer pending, when it still names this job. A window outlives it.
local function free_key(job)
  local key = key_of(job)
  if not key then return end
  local found = redis.call('HMGET', dedup_key(job.name, key), 'id', 'until')
  if found[1] == job.id and not found[2] then write_later('DEL', dedup_key(job.name, key)) end
end

-- Returns what a live key holds, or nil: the key is free, its window is over, or its job is gone. `job` is
-- the one it names, nil when a window has outlived it: a newer job that took its id is another job.
local function holder_of(name, key)
  local found =
    redis.call('HMGET', dedup_key(name, key), 'id', 'until', 'ttl', 'extend', 'replace')
  if not found[1] then return nil end
  if found[2] and NOW >= tonumber(found[2]) then return nil end
  local job = load_job(found[1])
  if not job or job.name ~= name or key_of(job) ~= key then job = nil end
  if not found[2] and (not job or FINISHED[job.state]) then return nil end
  return { id = found[1], job = job, ttl = tonumber(found[3]), extend = found[4], replace = found[5] }
end
