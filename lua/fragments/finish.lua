-- What every transition into a finished state does, whichever it is.
-- include: ledger
-- include: dedup
-- include: retain
-- include: outbox
local function finish(job, state, set, unset)
  job.finished_at = NOW_TEXT
  set[#set + 1] = 'finished_at'
  set[#set + 1] = NOW_TEXT
  if job.awaited then
    unset[#unset + 1] = 'awaited'
    write_later('PUBLISH', DONE_CHANNEL, job.id)
    job.awaited = false
  end
  if job.child then report_to_parent(job, state) end
  if job.keep and retain(job, state) then
    take_away(job)
    -- Another item of this call that names it is told what the first one did.
    job.state, jobs[job.id] = state, job
  else
    free_key(job)
    move(job, state, set, unset)
  end
end
