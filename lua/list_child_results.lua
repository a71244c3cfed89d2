-- Script:  list_child_results
-- Version: 1
-- Args:    now id limit has_after after
-- Moves:   - (reads only)
-- Returns: ok, total, completed, failed, cancelled, more, then for each child: key, outcome, has_exit, exit
-- Events:  -
--
-- Atomic so that the numbers and the rows are of one instant. Children come in byte order of their keys.
-- Before the fan-out has landed there are none. A row that was open when its parent settled reads as
-- cancelled, whether or not that is delivered yet.
-- include: meta
-- include: text
local id, limit = ARGV[2], tonumber(ARGV[3])
local _, refusal = open_store({})
if refusal then return refusal end

if redis.call('HGET', job_key(id), 'flow') ~= 'collect' then return { 'ok', '0', '0', '0', '0', '0' } end
local counted = redis.call('HMGET', flow_key(id), 'completed', 'failed', 'cancelled')
local owed = redis.call('ZCARD', owed_key(id))
local reply = {
  'ok', text(redis.call('ZCARD', children_key(id))), counted[1] or '0', counted[2] or '0',
  text(tonumber(counted[3] or 0) + owed), '0',
}
if limit == 0 then return reply end
local first = ARGV[4] == '1' and '(' .. ARGV[5] or '-'
local keys = redis.call('ZRANGE', children_key(id), first, '+', 'BYLEX', 'LIMIT', '0', text(limit + 1))
if #keys > limit then
  reply[6] = '1'
  keys[#keys] = nil
end
if #keys == 0 then return reply end
local outcomes = redis.call('HMGET', outcomes_key(id), unpack(keys))
local exits = redis.call('HMGET', results_key(id), unpack(keys))
for i, key in ipairs(keys) do
  local outcome = outcomes[i]
    or redis.call('ZSCORE', pending_key(id), key) and 'pending' or 'cancelled'
  for _, value in ipairs({ key, outcome, exits[i] and '1' or '0', exits[i] or '' }) do
    reply[#reply + 1] = value
  end
end
return reply
