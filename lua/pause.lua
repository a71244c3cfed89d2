-- Script:  pause
-- Version: 1
-- Args:    now nonce repeated queue
-- Moves:   - (claim hands out nothing of a paused queue)
-- Returns: paused | paused_before
-- Events:  -
--
-- Atomic because every claim reads the pause in the step that would hand a job out: once this call is
-- answered, no worker starts anything of the queue. The field holds the instant at which it was paused.
-- include: clock
-- include: meta
local nonce, queue = ARGV[2], ARGV[4]
local _, refusal = open_store({ queue })
if refusal then return refusal end
if ARGV[3] == '1' and redis.call('EXISTS', answered_key(nonce)) == 1 then return { 'paused' } end
if PAUSED[queue] then return { 'paused_before' } end

-- HSET may grow memory: behind a ZREM a full server accepts it.
redis.call('ZREM', ACTIVE_KEY, '')
redis.call('HSETNX', META_KEY, 'schema', SCHEMA)
redis.call('HSETNX', META_KEY, 'created', NOW_TEXT)
redis.call('HSET', META_KEY, 'paused:' .. queue, NOW_TEXT)
redis.call('SET', answered_key(nonce), 'paused', 'PX', '60000')
return { 'paused' }
