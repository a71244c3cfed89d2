-- Script:  prune
-- Version: 2
-- Args:    now limit completed_ttl failed_ttl cancelled_ttl (queue name)*
-- Moves:   completed -> -, failed -> -, cancelled -> -
-- Returns: ok, number of jobs that were pruned
-- Events:  -
--
-- Atomic because a job is judged old and removed in one step: one that is retried meanwhile is never lost.
-- Three rules: the age on the job's own record, wherever the job stands; the ceiling of the store that
-- asks; and the policy of the newest job of each set, which a finish may have applied in part. A (queue,
-- name) pair whose last job has gone is forgotten.
-- include: retain
-- include: meta
local STATES = { 'completed', 'failed', 'cancelled' }
local UNFINISHED = { 'waiting', 'delayed', 'active', 'waiting-children' }
local limit, ceilings = tonumber(ARGV[2]), {}
for i, state in ipairs(STATES) do ceilings[state] = tonumber(ARGV[2 + i]) end
local _, refusal = open_store({})
if refusal then return refusal end

local function expire()
  local ids = redis.call('ZRANGE', EXPIRES_KEY, '-inf', NOW_TEXT, 'BYSCORE', 'LIMIT', '0', ARGV[2])
  local gone = 0
  for _, id in ipairs(ids) do
    local job = load_job(id)
    if not job or not FINISHED[job.state] then
      plan(leaving, EXPIRES_KEY, id)
      gone = gone + 1
    elseif not owes_cancels(job) then
      erase(job)
      gone = gone + 1
    end
  end
  apply_moves()
  return gone
end

-- The stricter of two ages; nil for none.
local function stricter(a, b)
  return a and b and math.min(a, b) or a or b
end

local removed = expire()
for i = 6, #ARGV, 2 do
  local queue, name = ARGV[i], ARGV[i + 1]
  local keys = {}
  for _, state in ipairs(UNFINISHED) do keys[#keys + 1] = index_key(state, queue, name) end
  for _, state in ipairs(STATES) do
    local key = finished_key(state, queue, name)
    keys[#keys + 1] = key
    local newest = redis.call('ZRANGE', key, '-1', '-1')[1]
    local job = newest and load_job(newest)
    local count, age = nil, nil
    if job and job.keep then count, age = policy_of(job, state) end
    age = stricter(age, ceilings[state])
    if newest and removed < limit then
      removed = removed + prune_set(key, state, count, age, limit - removed)
    end
  end
  if redis.call('EXISTS', unpack(keys)) == 0 then
    redis.call('HDEL', META_KEY, 'seen:' .. queue .. ':' .. name)
    redis.call('DEL', wake_key(queue, name))
  end
end
return { 'ok', text(removed) }
