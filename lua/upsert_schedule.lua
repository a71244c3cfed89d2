-- Script:  upsert_schedule
-- Version: 2
-- Args:    now nonce repeated name key cadence next_run_at reset (field value)*
-- Moves:   - (writes a schedule; jobs come from its ticks)
-- Returns: created | kept | reset | left, next_run_at, group and cadence it had
-- Events:  -
--
-- Atomic because the cadence is compared in the step that writes: registering a schedule again as it is
-- leaves its next occurrence alone, however many processes start at once; another cadence resets it.
-- Everything else is taken from the call, and what the call does not name is dropped. With `reset` 0 another
-- cadence is left alone with all that goes with it, and only noted as registered: of two processes that go on
-- registering their own, none begins anew for ever. A call sent again because its reply was lost finds its
-- nonce: it is told the same, and what happened since stands.
-- include: schedule
local nonce, name, key, cadence, next_run_at = ARGV[2], ARGV[4], ARGV[5], ARGV[6], ARGV[7]
local _, refusal = open_store({})
if refusal then return refusal end
local answered = ARGV[3] == '1' and redis.call('GET', answered_key(nonce))
if answered then return { string.match(answered, '^(%S+) (%S+) (%S*) (.*)$') } end

local hash = schedule_key(name, key)
local found = redis.call('HMGET', hash,
  'cadence', 'next_run_at', 'paused', 'created_at', 'last_run_at', 'last_job_id', 'anchor', 'group')
local word = not found[1] and 'created' or found[1] == cadence and 'kept'
  or ARGV[8] == '0' and found[2] and 'left' or 'reset'
local function answer()
  local had = { found[8] or '', found[1] or '' }
  redis.call('SET', answered_key(nonce), word .. ' ' .. next_run_at .. ' ' .. had[1] .. ' ' .. had[2], 'PX', '60000')
  return { word, next_run_at, had[1], had[2] }
end
if word == 'left' then
  next_run_at = found[2]
  redis.call('HSET', hash, 'updated_at', NOW_TEXT)
  return answer()
end
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
for i = 9, #ARGV, 2 do
  -- An interval that is kept stays on its first grid; one that begins at 0 has no anchor.
  if word ~= 'kept' or ARGV[i] ~= 'anchor' then keep(ARGV[i], ARGV[i + 1]) end
end
if word == 'kept' then
  next_run_at = found[2]
  keep('anchor', found[7])
end
-- A full server refuses the first write, before anything of the old record is gone.
redis.call('HSETNX', META_KEY, 'schema', SCHEMA)
redis.call('HSETNX', META_KEY, 'created', NOW_TEXT)
redis.call('DEL', hash)
redis.call('HSET', hash, unpack(set))
set_next(name, key, next_run_at)
return answer()
