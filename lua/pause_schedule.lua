-- Script:  pause_schedule
-- Version: 2
-- Args:    now nonce repeated name key paused cadence next_run_at
-- Moves:   - (a paused schedule makes no jobs)
-- Returns: ok | changed | not_found
-- Events:  -
--
-- Atomic because the mark and the place among the due or the paused ones change together. A schedule that
-- is resumed goes on at the occurrence it is given; one that is paused, or was so already, keeps its own.
-- It is `changed` when it has another cadence than the one that occurrence was counted by.
-- A call sent again because its reply was lost finds its nonce: whoever asked last has the word.
-- include: schedule
local nonce, name, key, paused = ARGV[2], ARGV[4], ARGV[5], ARGV[6] == '1'
local cadence, next_run_at = ARGV[7], ARGV[8]
local _, refusal = open_store({})
if refusal then return refusal end
if ARGV[3] == '1' and redis.call('EXISTS', answered_key(nonce)) == 1 then return { 'ok' } end

local hash = schedule_key(name, key)
local found = redis.call('HMGET', hash, 'next_run_at', 'paused', 'cadence')
if not found[1] then return { 'not_found' } end
if paused == (found[2] and true or false) then
  redis.call('SET', answered_key(nonce), 'ok', 'PX', '60000')
  return { 'ok' }
end
if not paused and found[3] ~= cadence then return { 'changed' } end
redis.call('ZREM', set_of(not paused), name .. ':' .. key)
if paused then
  redis.call('HSET', hash, 'paused', NOW_TEXT)
else
  redis.call('HDEL', hash, 'paused')
end
set_next(name, key, paused and found[1] or next_run_at)
redis.call('SET', answered_key(nonce), 'ok', 'PX', '60000')
return { 'ok' }
