-- A schedule is a hash and a member of one of two sorted sets, by its next occurrence: of those that are
-- due in turn, or of those that are paused.
-- include: clock
-- include: meta

local function set_of(paused)
  return paused and PAUSED_SCHEDULES_KEY or SCHEDULES_KEY
end

-- Whether the schedule still expects this occurrence; what acts on an older view of it does nothing.
local function expects(name, key, expected)
  return redis.call('HGET', schedule_key(name, key), 'next_run_at') == expected
end

local function is_paused(name, key)
  return redis.call('HEXISTS', schedule_key(name, key), 'paused') == 1
end

local function set_next(name, key, next_run_at)
  local paused = is_paused(name, key)
  redis.call('HSET', schedule_key(name, key), 'next_run_at', next_run_at)
  redis.call('ZADD', set_of(paused), next_run_at, name .. ':' .. key)
end
