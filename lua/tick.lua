-- Script:  tick
-- Version: 2
-- Args:    now repeated name key expected next_run_at item (see read_items)
-- Moves:   - -> waiting | delayed
-- Returns: ticked | existed | stale
-- Events:  wake
--
-- Atomic because the schedule moves on in the step that inserts its job: of any number of workers that see
-- an occurrence, one finds it expected and all others find it gone. The job is exactly the one given; an id
-- that exists inserts nothing. A call sent again finds its own job by the nonce. A schedule that was paused
-- since the tick's view of it makes no job.
-- include: insert
-- include: schedule
local name, key, expected, next_run_at = ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local items = read_items(7)
local refusal = open_for(items)
if refusal then return refusal end

local item = items[1]
if item.id == '' then return redis.error_reply('MQTICK a tick needs a job with an id') end
if not expects(name, key, expected) or is_paused(name, key) then
  local own = ARGV[2] == '1' and redis.call('HGET', job_key(item.id), 'nonce') == item.nonce
  return { (own or came_and_went(item)) and 'ticked' or 'stale' }
end
local word = take_in(item)
if not word then return order_used_up() end
set_next(name, key, next_run_at)
redis.call('HSET', schedule_key(name, key), 'last_run_at', expected, 'last_job_id', item.id)
apply_inserts()
return { word == 'enqueued' and 'ticked' or 'existed' }
