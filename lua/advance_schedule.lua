-- Script:  advance_schedule
-- Version: 1
-- Args:    now nonce repeated name key expected next_run_at
-- Moves:   - (a schedule moves on without a job)
-- Returns: advanced | stale
-- Events:  -
--
-- Atomic because it moves on from the occurrence that was judged, and from no other: a tick that was faster
-- wins. A call sent again because its reply was lost finds its nonce, wherever the schedule stands by then.
-- include: schedule
local nonce, name, key, expected, next_run_at = ARGV[2], ARGV[4], ARGV[5], ARGV[6], ARGV[7]
local _, refusal = open_store({})
if refusal then return refusal end
if ARGV[3] == '1' and redis.call('EXISTS', answered_key(nonce)) == 1 then return { 'advanced' } end

if not expects(name, key, expected) then return { 'stale' } end
-- HSET may grow memory: behind a ZREM a full server accepts it.
redis.call('ZREM', ACTIVE_KEY, '')
set_next(name, key, next_run_at)
redis.call('SET', answered_key(nonce), 'advanced', 'PX', '60000')
return { 'advanced' }
