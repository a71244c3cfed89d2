-- The only writer of `state`. A move takes the job out of the structures of its old state and puts
-- it into those of the new one. Moves are planned first and written together by `apply_moves`:
-- every ZREM before anything that grows (a server that is out of memory refuses only a script whose
-- *first* write may grow, so the store still drains), and ZADD and ZREM once per key for a batch.
-- include: job
-- include: text
-- include: wake

-- 2^42: room for 4.4e12 places in line inside one priority; with |priority| <= 1000 every score
-- stays an exact double.
local PRIORITY_STEP = 4398046511104

-- A place in line: a higher priority first, then the enqueue order.
local function place(job)
  return text(count_of(job, 'seq') - count_of(job, 'priority') * PRIORITY_STEP)
end

-- A new place at the back. INCR may grow memory, so it must not be the first write of a script that
-- has to work on a full server.
local function next_seq()
  redis.call('ZREM', ACTIVE_KEY, '')
  return text(redis.call('INCR', SEQ_KEY))
end

local leaving, entering, writes, runnable, delayed

-- What is to be done once when the moves planned so far stand.
local after_moves

local function nothing_planned()
  leaving, entering = { keys = {}, args = {} }, { keys = {}, args = {} }
  writes, runnable, delayed = {}, {}, {}
end
nothing_planned()

-- Appends to the one ZREM (ids) or ZADD (scores and ids) of `key`.
local function plan(group, key, first, second)
  local args = group.args[key]
  if not args then
    args = {}
    group.args[key] = args
    group.keys[#group.keys + 1] = key
  end
  args[#args + 1] = first
  if second then args[#args + 1] = second end
end

-- A write for after the ZREMs, in the order given.
local function write_later(...) writes[#writes + 1] = { ... } end

-- The sorted set of a state itself, beside the index that every state has.
local function own_set(job, state)
  if state == 'waiting' then return waiting_key(job.queue, job.name) end
  if state == 'delayed' then return delayed_key(job.queue) end
  if state == 'active' then return ACTIVE_KEY end
  if state == 'waiting-children' then return nil end
  return finished_key(state, job.queue, job.name)
end

-- The job's score in it.
local function own_score(job, state)
  if state == 'waiting' then return place(job) end
  if state == 'delayed' then return text(count_of(job, job.run_at and 'run_at' or 'enqueued_at')) end
  if state == 'active' then return job.lock_expires_at end
  return job.finished_at
end

-- Plans that `job` leaves the structures of its state.
local function leave(job)
  plan(leaving, index_key(job.state, job.queue, job.name), job.id)
  local key = own_set(job, job.state)
  if key then plan(leaving, key, job.id) end
  if job.keep and FINISHED[job.state] then plan(leaving, EXPIRES_KEY, job.id) end
end

-- Plans the move of `job` to `state`. `set` is a flat list of fields and values written with it,
-- `unset` a list of fields dropped. What places the job (seq, run_at, lock_expires_at, finished_at)
-- must already stand on its table.
local function move(job, state, set, unset)
  if job.state then leave(job) end
  job.state = state
  write_later('HSET', job_key(job.id), 'state', state, unpack(set))
  if unset and #unset > 0 then write_later('HDEL', job_key(job.id), unpack(unset)) end
  local since = text(count_of(job, 'enqueued_at'))
  plan(entering, index_key(state, job.queue, job.name), since, job.id)
  local key = own_set(job, state)
  if key then plan(entering, key, own_score(job, state), job.id) end
  if state == 'waiting' then runnable[#runnable + 1] = job end
  if state == 'delayed' then delayed[#delayed + 1] = job end
end

local function apply_moves()
  for _, key in ipairs(leaving.keys) do redis.call('ZREM', key, unpack(leaving.args[key])) end
  for _, write in ipairs(writes) do redis.call(unpack(write)) end
  for _, key in ipairs(entering.keys) do redis.call('ZADD', key, unpack(entering.args[key])) end
  wake_for(runnable, delayed)
  nothing_planned()
  local act = after_moves
  after_moves = nil
  if act then act() end
end
