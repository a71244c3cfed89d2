-- Script:  resume
-- Version: 1
-- Args:    now nonce repeated queue
-- Moves:   - (claim hands out jobs of the queue again)
-- Returns: resumed | not_paused
-- Events:  wake
--
-- Atomic because the wake-ups that were withheld are owed in the step that ends the pause: a job enqueued
-- the moment before is announced here, one enqueued the moment after by its own enqueue. Names with delayed
-- jobs alone are woken too, since a sleeper may not know when they fall due, or that they have.
-- include: wake
local nonce, queue = ARGV[2], ARGV[4]
local _, refusal = open_store({ queue })
if refusal then return refusal end
if ARGV[3] == '1' and redis.call('EXISTS', answered_key(nonce)) == 1 then return { 'resumed' } end
if not PAUSED[queue] then return { 'not_paused' } end

redis.call('HDEL', META_KEY, 'paused:' .. queue)
local prefix = 'seen:' .. queue .. ':'
for _, field in ipairs(redis.call('HKEYS', META_KEY)) do
  if string.sub(field, 1, #prefix) == prefix then
    local name = string.sub(field, #prefix + 1)
    if redis.call('EXISTS', waiting_key(queue, name), index_key('delayed', queue, name)) > 0 then
      wake(queue, name)
    end
  end
end
redis.call('SET', answered_key(nonce), 'resumed', 'PX', '60000')
return { 'resumed' }
