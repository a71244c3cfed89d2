-- Script:  remove_schedule
-- Version: 1
-- Args:    now nonce repeated name key
-- Moves:   - (deletes a schedule; jobs it has made stay)
-- Returns: removed | not_found
-- Events:  -
--
-- Atomic because the record and its place among the due ones go together: no tick can meet half of it.
-- A call sent again because its reply was lost finds its nonce, and leaves alone what was registered since.
-- include: schedule
local nonce, name, key = ARGV[2], ARGV[4], ARGV[5]
local _, refusal = open_store({})
if refusal then return refusal end
if ARGV[3] == '1' and redis.call('EXISTS', answered_key(nonce)) == 1 then return { 'removed' } end

redis.call('ZREM', SCHEDULES_KEY, name .. ':' .. key)
redis.call('ZREM', PAUSED_SCHEDULES_KEY, name .. ':' .. key)
if redis.call('DEL', schedule_key(name, key)) == 0 then return { 'not_found' } end
redis.call('SET', answered_key(nonce), 'removed', 'PX', '60000')
return { 'removed' }
