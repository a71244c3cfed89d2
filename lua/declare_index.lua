-- Script:  declare_index
-- Version: 1
-- Args:    now nonce repeated key*
-- Moves:   - (from here on enqueue keeps a sorted set for each value of these metadata keys)
-- Returns: ok, number of keys that were new
-- Events:  -
--
-- Atomic because every job is either enqueued after the declaration, by a script that reads it, or stands in
-- a set of a (queue, name) pair that is noted here for the back-fill: none falls between. It holds for every
-- writer of the store, whether or not its definition declares the key.
-- include: clock
-- include: meta
local found, refusal = open_store({}, { 'indexed' })
if refusal then return refusal end
local before = ARGV[3] == '1' and redis.call('GET', answered_key(ARGV[2]))
if before then return { 'ok', before } end

local declared, fresh = found[1] or '', {}
for i = 4, #ARGV do
  if not string.find(' ' .. declared .. ' ', ' ' .. ARGV[i] .. ' ', 1, true) then
    declared = declared == '' and ARGV[i] or declared .. ' ' .. ARGV[i]
    fresh[#fresh + 1] = ARGV[i]
  end
end
if #fresh == 0 then return { 'ok', '0' } end

-- HSET may grow memory: behind a ZREM a full server accepts it.
redis.call('ZREM', ACTIVE_KEY, '')
redis.call('HSETNX', META_KEY, 'schema', SCHEMA)
redis.call('HSETNX', META_KEY, 'created', NOW_TEXT)
redis.call('HSET', META_KEY, 'indexed', declared)
local seen = {}
for _, field in ipairs(redis.call('HKEYS', META_KEY)) do
  local pair = string.match(field, '^seen:(.*)$')
  if pair then seen[#seen + 1] = pair end
end
for _, key in ipairs(fresh) do
  if #seen == 0 then redis.call('HSET', META_KEY, 'ready:' .. key, '1') end
  for _, pair in ipairs(seen) do redis.call('HSET', backfill_key(key), pair, '') end
end
redis.call('SET', answered_key(ARGV[2]), text(#fresh), 'PX', '60000')
return { 'ok', text(#fresh) }
