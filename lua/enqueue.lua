-- Script:  enqueue
-- Version: 1
-- Args:    now (id queue name nonce at delay_ms priority payload n_fields (field value)* n_extra (field value)*)*
-- Moves:   - -> waiting | delayed
-- Returns: ok, then for each item: enqueued | duplicate, name of the job that has the id
-- Events:  wake
--
-- Atomic because the id is taken, the place in line given and the wake-up owed in one step. The payload's
-- SET NX is the guard and the first write: an id that exists, in any state, is left as it is, and a full
-- server refuses before anything is half-written. An item whose nonce stands on the record is this same
-- call, sent again because its reply was lost.
-- include: clock
-- include: move

-- The last sequence number whose score is an exact double at either end of the priority range.
local LAST_SEQ = 9007199254740992 - 1001 * PRIORITY_STEP

local function read_items()
  local items, at = {}, 2
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
    item.fields, item.extra = pairs_of(), pairs_of()
    items[#items + 1] = item
  end
  return items
end

local items = read_items()
local pair_fields, known = {}, {}
for _, item in ipairs(items) do
  local field = 'seen:' .. item.queue .. ':' .. item.name
  if not known[field] then
    known[field] = true
    pair_fields[#pair_fields + 1] = field
  end
end
local seen, refusal = open_store(queues_of(items), pair_fields)
if refusal then return refusal end

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
  }
  local set = { 'queue', job.queue, 'name', job.name, 'seq', job.seq, 'enqueued_at', NOW_TEXT, 'nonce', item.nonce }
  local function put(field, value)
    set[#set + 1] = field
    set[#set + 1] = value
  end
  if item.priority ~= '0' then put('priority', item.priority) end
  if item.run_at > NOW then put('run_at', job.run_at) end
  for _, value in ipairs(item.fields) do set[#set + 1] = value end
  if #item.extra > 0 then
    put('extra', '1')
    write_later('HSET', extra_key(item.id), unpack(item.extra))
  end
  move(job, item.run_at > NOW and 'delayed' or 'waiting', set)
  return true
end

local reply, fresh = { 'ok' }, {}
for _, item in ipairs(items) do
  local word, name = 'enqueued', item.name
  if redis.call('SET', payload_key(item.id), item.payload, 'NX') then
    if not insert(item) then
      register()
      apply_moves()
      return redis.error_reply('MQSEQ the enqueue order of this store is used up')
    end
    fresh[item.id], used['seen:' .. item.queue .. ':' .. item.name] = item, true
  else
    local first = fresh[item.id]
    local found = first and { first.name, first.nonce } or redis.call('HMGET', job_key(item.id), 'name', 'nonce')
    name = found[1] or name
    if found[2] ~= item.nonce then word = 'duplicate' end
  end
  reply[#reply + 1] = word
  reply[#reply + 1] = name
end
register()
apply_moves()
return reply
