-- Script:  backfill
-- Version: 1
-- Args:    now limit
-- Moves:   - (adds jobs enqueued before a metadata key was declared to its sorted sets)
-- Returns: working, key, number of jobs looked at | done
-- Events:  -
--
-- Atomic because a step reads where the last one ended, does its share and notes where it ended, so any
-- number of workers may take steps. One (queue, name) pair at a time, its seven states merged by
-- enqueued_at, which never changes: a job that changes state meanwhile is met all the same. What stands
-- behind the newest job there was when the pair was begun has been indexed by its own enqueue.
-- include: keyset
-- include: meta
local STATES = {
  'waiting', 'delayed', 'active', 'waiting-children', 'completed', 'failed', 'cancelled',
}
local limit = tonumber(ARGV[2])
local found, refusal = open_store({}, { 'indexed' })
if refusal then return refusal end

local key, progress
for declared in string.gmatch(found[1] or '', '%S+') do
  if redis.call('HGET', META_KEY, 'ready:' .. declared) ~= '1' then
    key, progress = declared, backfill_key(declared)
    break
  end
end
if not key then return { 'done' } end

-- The first writes below may grow memory: behind a ZREM a full server accepts them.
redis.call('ZREM', ACTIVE_KEY, '')
local pair = redis.call('HKEYS', progress)[1]
if not pair then
  redis.call('HSET', META_KEY, 'ready:' .. key, '1')
  return { 'working', key, '0' }
end

local queue, name = string.match(pair, '^([^:]*):(.*)$')
local sources = {}
for i, state in ipairs(STATES) do sources[i] = { key = index_key(state, queue, name) } end

-- `<score of the last job of the pair> <score> <id>` as far as it got.
local until_score, score, id = string.match(redis.call('HGET', progress, pair), '^(%d+) (%d+) (.*)$')
if not until_score then
  local newest = 0
  for _, source in ipairs(sources) do
    local last = redis.call('ZRANGE', source.key, '-1', '-1', 'WITHSCORES')
    newest = math.max(newest, tonumber(last[2] or 0))
  end
  until_score = text(newest)
end

local function index(member)
  local extra = redis.call('HMGET', extra_key(member.id), 'metadata:' .. key, 'indexed')
  local under = extra[2] or ''
  if extra[1] and not string.find(' ' .. under .. ' ', ' ' .. key .. ' ', 1, true) then
    redis.call('ZADD', metadata_key(key, extra[1]), text(member.score), member.id)
    redis.call('HSET', extra_key(member.id), 'indexed', under == '' and key or under .. ' ' .. key)
  end
end

local take = merged(sources, false, score and { score, id } or nil, limit)
local examined, last = 0, nil
while examined < limit do
  local member = take()
  last = member
  if not member or member.score > tonumber(until_score) then break end
  examined = examined + 1
  index(member)
end
if last and last.score <= tonumber(until_score) then
  redis.call('HSET', progress, pair, until_score .. ' ' .. text(last.score) .. ' ' .. last.id)
else
  redis.call('HDEL', progress, pair)
end
return { 'working', key, text(examined) }
