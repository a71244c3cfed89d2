-- Script:  advance_schedule
-- Version: 1
-- Args:    now repeated name key expected next_run_at
-- Moves:   - (a schedule moves on without a job)
-- Returns: advanced | stale
-- Events:  -
--
-- Atomic because it moves on from the occurrence that was judged, and from no other: a tick that was faster
-- wins. A call sent again finds the schedule where it has put it.
-- include: schedule
local name, key, expected, next_run_at = ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local _, refusal = open_store({})
if refusal then return refusal end

if not expects(name, key, expected) then
  return { ARGV[2] == '1' and expects(name, key, next_run_at) and 'advanced' or 'stale' }
end
-- HSET may grow memory: behind a ZREM a full server accepts it.
redis.call('ZREM', ACTIVE_KEY, '')
set_next(name, key, next_run_at)
return { 'advanced' }
