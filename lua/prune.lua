-- Script:  prune
-- Version: 2
-- Args:    now limit completed_ttl failed_ttl cancelled_ttl (queue name)*
-- Moves:   completed -> -, failed -> -, cancelled -> -
-- Returns: ok, number of jobs that were pruned
-- Events:  -
--
-- Atomic because a job is judged old and removed in one step: one that is retried meanwhile is never lost.
-- Three rules: the age on the job's own record, wherever the job stands; the ceiling of the store that
-- asks; and the policy of the newest job of each set, which a finish may have applied in part. A call without
-- sets does the first. A (queue, name) pair whose last job has gone is forgotten.
-- include: retain
-- include: meta
local STATES = { 'completed', 'failed', 'cancelled' }
local UNFINISHED = { 'waiting', 'delayed', 'active', 'waiting-children' }
local limit, ceilings = tonumber(ARGV[2]), {}
for i, state in ipairs(STATES) do ceilings[state] = tonumber(ARGV[2 + i]) end
local _, refusal = open_store({})
if refusal then return refusal end

-- The last job of a finished set, by its end, then by place in line.
local function newest_of(key)
  local found = redis.call('ZRANGE', key, '-1', '-1', 'WITHSCORES')
  local newest, best = found[1], nil
  if not newest then return nil end
  local tied = redis.call('ZRANGE', key, found[2], found[2], 'BYSCORE', 'LIMIT', '0', '100')
  for _, id in ipairs(#tied > 1 and tied or {}) do
    local seq = tonumber(redis.call('HGET', job_key(id), 'seq') or 0) or 0
    if not best or seq > best then newest, best = id, seq end
  end
  return newest
end

local removed = 0
for i = 6, #ARGV, 2 do
  local queue, name = ARGV[i], ARGV[i + 1]
  local keys = {}
  for _, state in ipairs(UNFINISHED) do keys[#keys + 1] = index_key(state, queue, name) end
  for _, state in ipairs(STATES) do
    local key = finished_key(state, queue, name)
    keys[#keys + 1] = key
    local newest = newest_of(key)
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
-- Only when no set is left: the newest of one may be past its age, and goes behind those its policy is for.
if #ARGV < 6 then
  removed = erase_outlived(EXPIRES_KEY, nil, limit, math.huge, function(number)
    return aged(EXPIRES_KEY, NOW_TEXT, number)
  end)
end
return { 'ok', text(removed) }
