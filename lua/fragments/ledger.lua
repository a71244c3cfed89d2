-- The ledger of a job: one field `run:<n>` a run (started|finished|outcome), `by:<n>` its worker,
-- and its exit. Apart they stay below 64 bytes each, which keeps the record a listpack; so does a
-- short exit (`exit:<n>`), and a longer one goes to the exits hash.
-- include: clock
-- include: move
local INLINE_EXIT_BYTES = 64

-- Appends the entry of a run that ends now. Entry numbers are gapless for the job's whole life.
-- `started_at` is absent for a job that was not running; `exit` is nil for an outcome without one.
local function append_run(job, set, outcome, started_at, worker, exit)
  local run = text(count_of(job, 'runs') + 1)
  job.runs, job.last_exit = run, exit or false
  local fields = { 'runs', run, 'run:' .. run, (started_at or '') .. '|' .. NOW_TEXT .. '|' .. outcome }
  if worker and worker ~= '' then
    fields[#fields + 1] = 'by:' .. run
    fields[#fields + 1] = worker
  end
  if exit and #exit <= INLINE_EXIT_BYTES then
    fields[#fields + 1] = 'exit:' .. run
    fields[#fields + 1] = exit
  elseif exit then
    write_later('HSET', exits_key(job.id), run, exit)
  end
  for _, value in ipairs(fields) do set[#set + 1] = value end
end
