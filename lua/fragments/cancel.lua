-- What a cancel does to a job that has not finished, by its state. `answered(word, set)` adds the fields by
-- which a repeated call is recognised.
-- include: finish

-- A pushed cancel that nobody took is garbage after this: the heartbeat has told the worker long ago.
local PUSH_TTL_MS = '60000'

local function cancel(job, answered)
  if job.state == 'active' then
    job.cancel_requested = '1'
    -- HSET may grow memory: behind a ZREM a full server accepts it.
    redis.call('ZREM', ACTIVE_KEY, '')
    write_later('HSET', job_key(job.id), unpack(answered('cancel_requested', { 'cancel_requested', '1' })))
    if job.worker then
      -- The token tells the run that was meant from a later one of the same job in the same worker.
      write_later('ZADD', control_key(job.worker), '0', job.token .. ' ' .. job.id)
      write_later('PEXPIRE', control_key(job.worker), PUSH_TTL_MS)
    end
    return 'cancel_requested'
  end
  if job.flow then abandon_children(job.id) end
  local set = answered('cancelled', {})
  append_run(job, set, 'cancelled', nil, nil, nil)
  finish(job, 'cancelled', set, {})
  return 'cancelled'
end
