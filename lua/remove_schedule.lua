-- Script:  remove_schedule
-- Version: 2
-- Args:    now nonce repeated name key updated_at
-- Moves:   - (deletes a schedule; jobs it has made stay)
-- Returns: removed | changed | not_found
-- Events:  -
--
-- Atomic because the record and its place among the due ones go together: no tick can meet half of it.
-- Of `updated_at`, unless it is empty, the record must be: one that was registered since it was read stays.
-- A call sent again because its reply was lost finds its nonce, and leaves alone what was registered since.
-- include: schedule
local nonce, name, key, updated_at = ARGV[2], ARGV[4], ARGV[5], ARGV[6]
local _, refusal = open_store({})
if refusal then return refusal end
if ARGV[3] == '1' and redis.call('EXISTS', answered_key(nonce)) == 1 then return { 'removed' } end

local hash = schedule_key(name, key)
if updated_at ~= '' then
  local found = redis.call('HGET', hash, 'updated_at')
  if found and found ~= updated_at then return { 'changed' } end
end
redis.call('ZREM', SCHEDULES_KEY, name .. ':' .. key)
redis.call('ZREM', PAUSED_SCHEDULES_KEY, name .. ':' .. key)
if redis.call('DEL', hash) == 0 then return { 'not_found' } end
redis.call('SET', answered_key(nonce), 'removed', 'PX', '60000')
return { 'removed' }
