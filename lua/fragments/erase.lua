-- What every removal of a job does: nothing of it stays, in no key.
-- include: dedup
-- include: metadata
-- include: flow
local function erase(job)
  leave(job)
  unindex_metadata(job.id)
  free_key(job)
  -- Rows that a run wrote and never acked are there without the marker.
  if job.flow or redis.call('EXISTS', flow_key(job.id)) == 1 then erase_flow(job.id) end
  write_later('DEL', job_key(job.id), payload_key(job.id), extra_key(job.id), exits_key(job.id))
  jobs[job.id] = false
end
