-- The outbox: reports of finished children to their parents, in the order in which they finished. A
-- parent may live in another store, so a report is kept here until somebody has carried it there.
-- include: move

-- `job.last_exit` is that of the ledger entry written with the same step; who fails a job without an exit
-- has put the reason on it.
local function report_to_parent(job, state)
  local parent = redis.call('HGET', extra_key(job.id), 'parent')
  if not parent then return end
  local entry = next_seq()
  local fields = { 'parent', parent, 'id', job.id, 'outcome', state }
  if job.last_exit then
    fields[#fields + 1] = 'exit'
    fields[#fields + 1] = job.last_exit
  end
  if job.failed_reason then
    fields[#fields + 1] = 'reason'
    fields[#fields + 1] = job.failed_reason
  end
  write_later('HSET', report_key(entry), unpack(fields))
  write_later('ZADD', OUTBOX_KEY, entry, entry)
end
