-- Who may end a run. The token names the holder; a lock that has expired and that no sweep has seen
-- still belongs to its token. The token of the last landed ack stays on the record until the next
-- run is acked, so a call repeated because its reply was lost is told what it did.
-- include: job
-- include: finish

-- Returns the job when `token` holds it, else nil and the word to answer.
local function held(id, token)
  local job = load_job(id)
  -- Retention may take a job away in the step of its ack; a repeat of that is no refusal.
  if not job then return nil, redis.call('GET', ack_key(token, id)) or 'not_found' end
  if job.state == 'active' and job.token == token then return job, nil end
  if job.acked_token == token then return nil, job.acked_as end
  return nil, 'lost'
end

-- Notes on `job` and in `set` that its holder's call landed as `word`, and returns the fields that a
-- job outside `active` does not have.
local function let_go(job, set, word)
  set[#set + 1] = 'acked_token'
  set[#set + 1] = job.token
  set[#set + 1] = 'acked_as'
  set[#set + 1] = word
  job.acked_token, job.acked_as = job.token, word
  job.token, job.worker, job.cancel_requested = false, false, false
  return { 'token', 'worker', 'cancel_requested' }
end

-- Ends a run with a cancel, whoever honours it: `set` and `unset` are what its caller adds.
local function land_cancelled(job, set, unset, worker)
  append_run(job, set, 'cancelled', job.processed_at, worker, nil)
  finish(job, 'cancelled', set, unset)
  return 'cancelled'
end
