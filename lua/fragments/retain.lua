-- Retention. A policy is text: for each finished state that has one `<state>=<count>/<age in ms>`, `*`
-- for a rule that is not given. It stands on the record (`keep`), or in `extra` when it is too long.
-- include: erase

-- Removed by one call at most, whatever the policy says; the pruner does the rest.
local PRUNE_BATCH = 50

-- Returns count and age of a job's policy for a state; nil for what it does not limit.
local function policy_of(job, state)
  local policy = job.keep
  if policy == '' then policy = redis.call('HGET', extra_key(job.id), 'keep') end
  if not policy then return nil, nil end
  local count, age = string.match(' ' .. policy, ' ' .. state .. '=([%d*]+)/([%d*]+)')
  return tonumber(count), tonumber(age)
end

-- Ids at the old end of a finished set, `excess` of them at most, by finish time, then place in line:
-- where the cut falls among jobs of one instant, their seq decides.
local function oldest(key, excess)
  local found = redis.call('ZRANGE', key, '0', text(excess - 1), 'WITHSCORES')
  local ids, last = {}, found[#found]
  for i = 1, #found, 2 do
    if found[i + 1] ~= last then ids[#ids + 1] = found[i] end
  end
  if not last then return ids end
  local tied = {}
  for i, id in ipairs(redis.call('ZRANGE', key, last, last, 'BYSCORE', 'LIMIT', '0', '1000')) do
    tied[i] = { id = id, score = tonumber(redis.call('HGET', job_key(id), 'seq') or 0) or 0 }
  end
  table.sort(tied, function(a, b) return a.score < b.score end)
  for i = 1, math.min(excess - #ids, #tied) do ids[#ids + 1] = tied[i].id end
  return ids
end

-- Erases finished jobs by id; a member without a job of that state is dropped from the set. A flow
-- parent that still owes cancels to children stays.
local function prune_all(key, state, ids)
  local gone = 0
  for _, id in ipairs(ids) do
    local job = load_job(id)
    if not job or job.state ~= state then
      plan(leaving, key, id)
      gone = gone + 1
    elseif not owes_cancels(job) then
      erase(job)
      gone = gone + 1
    end
  end
  apply_moves()
  return gone
end

-- Applies count and age to one finished set, at most `room` removals, and returns how many it made.
local function prune_set(key, state, count, age, room)
  local removed = 0
  if age then
    local before = text(NOW - age)
    removed = prune_all(key, state,
      redis.call('ZRANGE', key, '-inf', before, 'BYSCORE', 'LIMIT', '0', text(room)))
  end
  if count and removed < room then
    local excess = math.min(redis.call('ZCARD', key) - count, room - removed)
    if excess > 0 then removed = removed + prune_all(key, state, oldest(key, excess)) end
  end
  return removed
end

-- What a job that has just finished does to its peers of the same queue, name and state: by its own policy.
local function retain(job)
  local state = job.state
  local count, age = policy_of(job, state)
  if not count and not age then return end
  apply_moves()
  if (count == 0 or age == 0) and not owes_cancels(job) then
    erase(job)
    apply_moves()
  elseif age then
    redis.call('ZADD', EXPIRES_KEY, text(tonumber(job.finished_at) + age), job.id)
  end
  prune_set(finished_key(state, job.queue, job.name), state, count, age, PRUNE_BATCH)
end
