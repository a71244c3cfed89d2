-- Script:  mark_children_delivered
-- Version: 2
-- Args:    now id key*
-- Moves:   - (notes cancels as delivered)
-- Returns: ok
-- Events:  -
--
-- Atomic because a row leaves the set of what is owed in the step that counts it as cancelled: the numbers of
-- a flow add up at every instant.
-- include: meta
local id = ARGV[2]
local _, refusal = open_store({})
if refusal then return refusal end

for i = 3, #ARGV do
  if redis.call('ZREM', owed_key(id), ARGV[i]) == 1 then
    redis.call('ZREM', unstarted_key(id), ARGV[i])
    redis.call('HSET', outcomes_key(id), ARGV[i], 'cancelled')
    redis.call('HINCRBY', flow_key(id), 'cancelled', '1')
  end
end
if redis.call('EXISTS', owed_key(id)) == 0 then redis.call('ZREM', OWING_KEY, id) end
return { 'ok' }
