-- What enqueue does with an item that has a dedup key. Keys are written at once, not planned: the next
-- item of the same call must find them.
-- include: dedup
-- include: metadata

local function set_window(item, ttl)
  local ends_at = text(NOW + ttl)
  redis.call('HSET', dedup_key(item.name, item.dedup.key), 'until', ends_at)
  redis.call('ZADD', WINDOWS_KEY, ends_at, item.name .. ':' .. item.dedup.key)
end

-- The key names this job from here on, in the mode that its enqueue asks for.
local function take_key(item)
  local key, set = dedup_key(item.name, item.dedup.key), { 'id', item.id }
  redis.call('DEL', key)
  redis.call('ZREM', WINDOWS_KEY, item.name .. ':' .. item.dedup.key)
  local function put(field, value)
    if value then
      set[#set + 1] = field
      set[#set + 1] = value
    end
  end
  put('ttl', item.dedup.ttl and text(item.dedup.ttl))
  put('extend', item.dedup.extend and '1')
  put('replace', item.dedup.replace and '1')
  redis.call('HSET', key, unpack(set))
  if item.dedup.ttl then set_window(item, item.dedup.ttl) end
end

-- The latest wins: what a request says of a job is written over a delayed one. Its id, queue, place,
-- enqueued_at and ledger stay, and so does its state: with no delay it is due now.
local function replace(job, item, declared)
  -- What this very call may have planned for the job comes first, so that it can be taken back.
  apply_moves()
  redis.call('SET', payload_key(job.id), item.payload)
  if job.queue ~= item.queue then
    PAUSED[job.queue] = redis.call('HGET', META_KEY, 'paused:' .. job.queue) and true or nil
  end
  job.priority, job.run_at = item.priority, text(math.max(item.run_at, NOW))
  local given, unset = {}, {}
  local set = { 'priority', item.priority, 'run_at', job.run_at }
  for i = 1, #item.fields, 2 do
    given[item.fields[i]] = true
    set[#set + 1] = item.fields[i]
    set[#set + 1] = item.fields[i + 1]
  end
  for _, field in ipairs({ 'attempts_max', 'backoff', 'timeout_ms', 'keep' }) do
    if not given[field] then unset[#unset + 1] = field end
  end
  unindex_metadata(job.id)
  local old, kept, new = {}, 0, {}
  for _, field in ipairs(redis.call('HKEYS', extra_key(job.id))) do
    if string.sub(field, 1, 9) == 'metadata:' or field == 'indexed' or field == 'trace'
      or field == 'keep' then
      old[#old + 1] = field
    else
      kept = kept + 1
    end
  end
  for i = 1, #item.extra, 2 do
    if item.extra[i] ~= 'parent' then
      new[#new + 1] = item.extra[i]
      new[#new + 1] = item.extra[i + 1]
    end
  end
  local indexed = index_metadata(declared, job.id, text(count_of(job, 'enqueued_at')), new)
  if indexed then
    new[#new + 1] = 'indexed'
    new[#new + 1] = indexed
  end
  if #old > 0 then write_later('HDEL', extra_key(job.id), unpack(old)) end
  if #new > 0 then
    write_later('HSET', extra_key(job.id), unpack(new))
    set[#set + 1] = 'extra'
    set[#set + 1] = '1'
  elseif kept == 0 then
    unset[#unset + 1] = 'extra'
  end
  move(job, 'delayed', set, unset)
  apply_moves()
  -- The job may run and free the key before a lost answer is asked for again.
  redis.call('SET', answered_key(item.nonce), job.id, 'PX', '60000')
end

-- Returns the word and the id of the job that a live key names, or nil when the item is to be inserted.
local function deduplicate(item, declared)
  local before = ARGV[2] == '1' and redis.call('GET', answered_key(item.nonce))
  if before then return 'replaced', before end
  local holder = holder_of(item.name, item.dedup.key)
  if not holder then return nil end
  local replaces = holder.replace and holder.job and holder.job.state == 'delayed'
  if replaces then replace(holder.job, item, declared) end
  if holder.ttl and (replaces or holder.extend) then set_window(item, holder.ttl) end
  return replaces and 'replaced' or 'duplicate', holder.id
end
