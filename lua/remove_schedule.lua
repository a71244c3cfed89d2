-- Script:  remove_schedule
-- Version: 1
-- Args:    now name key
-- Moves:   - (deletes a schedule; jobs it has made stay)
-- Returns: removed | not_found
-- Events:  -
--
-- Atomic because the record and its place among the due ones go together: no tick can meet half of it.
-- include: schedule
local name, key = ARGV[2], ARGV[3]
local _, refusal = open_store({})
if refusal then return refusal end

redis.call('ZREM', SCHEDULES_KEY, name .. ':' .. key)
redis.call('ZREM', PAUSED_SCHEDULES_KEY, name .. ':' .. key)
if redis.call('DEL', schedule_key(name, key)) == 0 then return { 'not_found' } end
return { 'removed' }
