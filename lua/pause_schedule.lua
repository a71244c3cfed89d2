-- Script:  pause_schedule
-- Version: 1
-- Args:    now name key paused next_run_at
-- Moves:   - (a paused schedule makes no jobs)
-- Returns: ok | not_found
-- Events:  -
--
-- Atomic because the mark and the place among the due or the paused ones change together. A schedule that
-- is resumed goes on at the occurrence it is given; one that is only paused keeps its own.
-- include: schedule
local name, key, paused, next_run_at = ARGV[2], ARGV[3], ARGV[4] == '1', ARGV[5]
local _, refusal = open_store({})
if refusal then return refusal end

local hash = schedule_key(name, key)
local own = redis.call('HGET', hash, 'next_run_at')
if not own then return { 'not_found' } end
redis.call('ZREM', set_of(not paused), name .. ':' .. key)
if paused then
  redis.call('HSETNX', hash, 'paused', NOW_TEXT)
else
  redis.call('HDEL', hash, 'paused')
end
set_next(name, key, next_run_at ~= '' and next_run_at or own)
return { 'ok' }
