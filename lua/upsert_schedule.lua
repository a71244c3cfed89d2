-- Script:  upsert_schedule
-- Version: 1
-- Args:    now name key cadence next_run_at (field value)*
-- Moves:   - (writes a schedule; jobs come from its ticks)
-- Returns: created | kept | reset, next_run_at
-- Events:  -
--
-- Atomic because the cadence is compared in the step that writes: registering a schedule again as it is
-- leaves its next occurrence alone, however many processes start at once; another cadence resets it.
-- Everything else is taken from the call, and what the call does not name is dropped.
-- include: schedule
local name, key, cadence, next_run_at = ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local _, refusal = open_store({})
if refusal then return refusal end

local hash = schedule_key(name, key)
local found = redis.call('HMGET', hash,
  'cadence', 'next_run_at', 'paused', 'created_at', 'last_run_at', 'last_job_id', 'anchor')
local word = not found[1] and 'created' or found[1] == cadence and 'kept' or 'reset'
local set = { 'cadence', cadence, 'updated_at', NOW_TEXT, 'created_at', found[4] or NOW_TEXT }
local function keep(field, value)
  if value then
    set[#set + 1] = field
    set[#set + 1] = value
  end
end
keep('paused', found[3])
keep('last_run_at', found[5])
keep('last_job_id', found[6])
if word == 'kept' then next_run_at = found[2] end
for i = 6, #ARGV do
  local is_anchor = word == 'kept' and i % 2 == 1 and ARGV[i - 1] == 'anchor'
  set[#set + 1] = is_anchor and found[7] or ARGV[i]
end
-- A full server refuses the first write, before anything of the old record is gone.
redis.call('HSETNX', META_KEY, 'schema', SCHEMA)
redis.call('HSETNX', META_KEY, 'created', NOW_TEXT)
redis.call('DEL', hash)
redis.call('HSET', hash, unpack(set))
set_next(name, key, next_run_at)
return { word, next_run_at }
