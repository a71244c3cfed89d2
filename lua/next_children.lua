-- Script:  next_children
-- Version: 1
-- Args:    now id limit key*
-- Moves:   - (notes children as enqueued, and hands out the next that are not)
-- Returns: ok, then for each child: key, row
-- Events:  -
--
-- Atomic so that no child is handed out whose parent has settled meanwhile. The keys are those that the caller
-- has enqueued since it asked last; whoever dies between leaves them to the sweeper.
-- include: clock
-- include: job
-- include: meta
local id, limit = ARGV[2], tonumber(ARGV[3])
local _, refusal = open_store({})
if refusal then return refusal end

for i = 4, #ARGV do redis.call('ZREM', unstarted_key(id), ARGV[i]) end
local job = load_job(id)
if not job or job.state ~= 'waiting-children' then return { 'ok' } end
if limit < 1 then return { 'ok' } end
local keys = redis.call('ZRANGE', unstarted_key(id), '0', string.format('%.0f', limit - 1))
if #keys == 0 then return { 'ok' } end
local rows, reply = redis.call('HMGET', rows_key(id), unpack(keys)), { 'ok' }
for i, key in ipairs(keys) do
  reply[#reply + 1] = key
  reply[#reply + 1] = rows[i] or ''
end
return reply
