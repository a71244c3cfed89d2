-- What every removal of a job does: nothing of it stays, in no key.
-- include: dedup
-- include: metadata
local function erase(job)
  leave(job)
  unindex_metadata(job.id)
  free_key(job)
  write_later('DEL', job_key(job.id), payload_key(job.id), extra_key(job.id), exits_key(job.id))
  jobs[job.id] = false
end
