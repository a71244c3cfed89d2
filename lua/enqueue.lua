-- Script:  enqueue
-- Version: 2
-- Args:    now repeated item* (see read_items)
-- Moves:   - -> waiting | delayed, delayed -> delayed
-- Returns: ok, then for each item: enqueued | duplicate | replaced, name of the job, its id when a dedup key names it
-- Events:  wake
--
-- Atomic because the id is taken, the place in line given and the wake-up owed in one step. The payload's
-- SET NX is the guard and the first write: an id that exists, in any state, is left as it is, and a full
-- server refuses before anything is half-written. An item whose nonce stands on the record is this same
-- call, sent again because its reply was lost. A dedup key is decided in the same step, after the id: of
-- many producers one takes it and all others are told its job.
-- include: clock
-- include: move
-- include: deduplicate

-- The last sequence number whose score is an exact double at either end of the priority range.
local LAST_SEQ = 9007199254740992 - 1001 * PRIORITY_STEP

-- An item: id queue name nonce at delay_ms priority payload, then three lists, each behind its length:
-- the dedup key with ttl_ms, extend and replace, or nothing; fields and values; extra fields and values.
local function read_items()
  local items, at = {}, 3
  local function pairs_of()
    local list, n = {}, tonumber(ARGV[at])
    for i = at + 1, at + 2 * n do list[#list + 1] = ARGV[i] end
    at = at + 1 + 2 * n
    return list
  end
  while at <= #ARGV do
    local item = {
      id = ARGV[at], queue = ARGV[at + 1], name = ARGV[at + 2], nonce = ARGV[at + 3],
      run_at = tonumber(ARGV[at + 4]) or NOW + (tonumber(ARGV[at + 5]) or 0),
      priority = ARGV[at + 6], payload = ARGV[at + 7],
    }
    at = at + 8
    if ARGV[at] == '4' then
      item.dedup = {
        key = ARGV[at + 1], ttl = tonumber(ARGV[at + 2]), extend = ARGV[at + 3] == '1',
        replace = ARGV[at + 4] == '1',
      }
      at = at + 4
    end
    at = at + 1
    item.fields, item.extra = pairs_of(), pairs_of()
    items[#items + 1] = item
  end
  return items
end

local items = read_items()
local pair_fields, known = { 'indexed' }, {}
for _, item in ipairs(items) do
  local field = 'seen:' .. item.queue .. ':' .. item.name
  if not known[field] then
    known[field] = true
    pair_fields[#pair_fields + 1] = field
  end
end
local seen, refusal = open_store(queues_of(items), pair_fields)
if refusal then return refusal end
local declared = seen[1]

-- Writes the fields of the store's hash that this call adds: the pairs it is the first to use.
local used = {}
local function register()
  local set = {}
  for i, field in ipairs(pair_fields) do
    if used[field] and not seen[i] then
      set[#set + 1] = field
      set[#set + 1] = '1'
    end
  end
  if #set == 0 then return end
  redis.call('HSETNX', META_KEY, 'schema', SCHEMA)
  redis.call('HSETNX', META_KEY, 'created', NOW_TEXT)
  redis.call('HSET', META_KEY, unpack(set))
end

local function insert(item)
  local seq = redis.call('INCR', SEQ_KEY)
  if seq > LAST_SEQ then
    redis.call('DEL', payload_key(item.id))
    return false
  end
  local job = {
    id = item.id, queue = item.queue, name = item.name, priority = item.priority, seq = text(seq),
    enqueued_at = NOW_TEXT, run_at = text(math.max(item.run_at, NOW)),
    dedup = item.dedup and '', dedup_key = item.dedup and item.dedup.key,
  }
  local set = { 'queue', job.queue, 'name', job.name, 'seq', job.seq, 'enqueued_at', NOW_TEXT, 'nonce', item.nonce }
  local function put(field, value)
    set[#set + 1] = field
    set[#set + 1] = value
  end
  if item.priority ~= '0' then put('priority', item.priority) end
  if item.run_at > NOW then put('run_at', job.run_at) end
  for _, value in ipairs(item.fields) do set[#set + 1] = value end
  local indexed = index_metadata(declared, item.id, NOW_TEXT, item.extra)
  if indexed then
    item.extra[#item.extra + 1] = 'indexed'
    item.extra[#item.extra + 1] = indexed
  end
  if #item.extra > 0 then
    put('extra', '1')
    write_later('HSET', extra_key(item.id), unpack(item.extra))
  end
  move(job, item.run_at > NOW and 'delayed' or 'waiting', set)
  jobs[item.id] = job
  return true
end

local reply, fresh = { 'ok' }, {}
for _, item in ipairs(items) do
  local word, name, keyed_id = nil, item.name, nil
  if item.dedup and redis.call('EXISTS', payload_key(item.id)) == 0 then
    word, keyed_id = deduplicate(item, declared)
  end
  if not word and redis.call('SET', payload_key(item.id), item.payload, 'NX') then
    if not insert(item) then
      register()
      apply_moves()
      return redis.error_reply('MQSEQ the enqueue order of this store is used up')
    end
    word = 'enqueued'
    fresh[item.id], used['seen:' .. item.queue .. ':' .. item.name] = item, true
    if item.dedup then take_key(item) end
  elseif not word then
    local first = fresh[item.id]
    local found = first and { first.name, first.nonce } or redis.call('HMGET', job_key(item.id), 'name', 'nonce')
    name = found[1] or name
    word = found[2] == item.nonce and 'enqueued' or 'duplicate'
  end
  reply[#reply + 1] = word
  reply[#reply + 1] = name
  reply[#reply + 1] = keyed_id or ''
end
register()
apply_moves()
return reply
