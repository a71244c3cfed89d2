-- Script:  write_manifest
-- Version: 2
-- Args:    now id token mode (key row)*
-- Moves:   - (notes children of a parent whose fan-out is about to be acked)
-- Returns: written | fanned_out | lost | not_found
-- Events:  -
--
-- Atomic because rows are written only while the token holds the parent: a worker that lost it cannot add
-- to what its successor fans out. Written in bounded steps; nothing of it counts before the ack, and the
-- first step under another token begins anew. After a fan-out that has landed nothing is written.
-- include: flow
-- include: lock
local id, token, mode = ARGV[2], ARGV[3], ARGV[4]
local _, refusal = open_store({})
if refusal then return refusal end

local job, word = held(id, token)
if not job then return { word == 'lost' and 'lost' or word } end
if job.flow then return { 'fanned_out' } end
redis.call('ZREM', ACTIVE_KEY, '')
if redis.call('HGET', flow_key(id), 'token') ~= token then
  redis.call('UNLINK', flow_key(id), children_key(id), rows_key(id), pending_key(id), unstarted_key(id))
  redis.call('HSET', flow_key(id), 'token', token, 'mode', mode)
end
local rows, keys, pending = {}, {}, {}
for i = 5, #ARGV, 2 do
  rows[#rows + 1], rows[#rows + 2] = ARGV[i], ARGV[i + 1]
  keys[#keys + 1], keys[#keys + 2] = '0', ARGV[i]
  pending[#pending + 1], pending[#pending + 2] = NOW_TEXT, ARGV[i]
end
if #rows > 0 then
  redis.call('HSET', rows_key(id), unpack(rows))
  redis.call('ZADD', children_key(id), unpack(keys))
  redis.call('ZADD', unstarted_key(id), unpack(keys))
  redis.call('ZADD', pending_key(id), unpack(pending))
end
return { 'written' }
