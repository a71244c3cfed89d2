-- Taking jobs in: what enqueue does with each of its items, and a tick with the one it is given.
-- include: clock
-- include: move
-- include: deduplicate

-- The last sequence number whose score is an exact double at either end of the priority range.
local LAST_SEQ = 9007199254740992 - 1001 * PRIORITY_STEP

-- An item: id queue name nonce at delay_ms priority payload, then three lists, each behind its length:
-- the dedup key with ttl_ms, extend and replace, or nothing; fields and values; extra fields and values.
local function read_items(at)
  local items = {}
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

local pair_fields, seen, declared, used, fresh = { 'indexed' }, nil, nil, {}, {}

-- Learns what inserting these items needs of the store's hash; returns the error reply of another schema.
local function open_for(items)
  local known = {}
  for _, item in ipairs(items) do
    local field = 'seen:' .. item.queue .. ':' .. item.name
    if not known[field] then
      known[field] = true
      pair_fields[#pair_fields + 1] = field
    end
  end
  local refusal
  seen, refusal = open_store(queues_of(items), pair_fields)
  declared = seen and seen[1]
  return refusal
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

-- Whether this very call took the item in before, and its job has ended and gone since.
local function came_and_went(item)
  return ARGV[2] == '1' and redis.call('EXISTS', payload_key(item.id)) == 0
    and redis.call('GET', answered_key(item.nonce)) == item.id
end

-- Takes one item in. Returns the word, the name of the job that has the id, and the id of the job that a
-- dedup key names; nil when the enqueue order is used up.
local function take_in(item)
  local word, keyed_id = nil, nil
  if came_and_went(item) then return 'enqueued', item.name, nil end
  if item.dedup and redis.call('EXISTS', payload_key(item.id)) == 0 then
    word, keyed_id = deduplicate(item, declared)
  end
  if word then return word, item.name, keyed_id end
  if redis.call('SET', payload_key(item.id), item.payload, 'NX') then
    if not insert(item) then return nil end
    fresh[item.id], used['seen:' .. item.queue .. ':' .. item.name] = item, true
    if item.dedup then take_key(item) end
    return 'enqueued', item.name, nil
  end
  local first = fresh[item.id]
  local found = first and { first.name, first.nonce } or redis.call('HMGET', job_key(item.id), 'name', 'nonce')
  return found[2] == item.nonce and 'enqueued' or 'duplicate', found[1] or item.name, nil
end

-- Writes what was taken in, and the fields of the store's hash that it is the first to need.
local function apply_inserts()
  local set = {}
  for i, field in ipairs(pair_fields) do
    if used[field] and not seen[i] then
      set[#set + 1] = field
      set[#set + 1] = '1'
    end
  end
  if #set > 0 then
    redis.call('HSETNX', META_KEY, 'schema', SCHEMA)
    redis.call('HSETNX', META_KEY, 'created', NOW_TEXT)
    redis.call('HSET', META_KEY, unpack(set))
  end
  apply_moves()
end

local function order_used_up()
  return redis.error_reply('MQSEQ the enqueue order of this store is used up')
end
