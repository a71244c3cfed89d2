-- Script:  claim
-- Version: 3
-- Args:    now nonce repeated caller worker token lock_ms limit promote_limit n_queues queue* name*
-- Moves:   delayed -> waiting, waiting -> active
-- Returns: claimed, now, next_run_at or '', record*
-- Events:  wake
--
-- Atomic because a job leaves the line and gets its lock in one step: no crash can lose it between, and
-- two workers can never hold it. Promotes what is due first, in a paused queue as well. Reads only the
-- heads of names it was asked for, so its cost does not depend on what else waits.
-- include: clock
-- include: record
-- include: move
local nonce, repeated, caller, worker, token = ARGV[2], ARGV[3] == '1', ARGV[4], ARGV[5], ARGV[6]
local lock_ms, limit, promote_limit = tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9])
local queues, names, pairs_asked, seen_fields = {}, {}, {}, {}
for i = 11, 10 + tonumber(ARGV[10]) do queues[#queues + 1] = ARGV[i] end
for i = 11 + #queues, #ARGV do names[#names + 1] = ARGV[i] end
for _, queue in ipairs(queues) do
  for _, name in ipairs(names) do
    pairs_asked[#pairs_asked + 1] = { queue = queue, name = name }
    seen_fields[#seen_fields + 1] = 'seen:' .. queue .. ':' .. name
  end
end

local seen, refusal = open_store(queues, seen_fields)
if refusal then return refusal end

-- A repeated call: its reply was lost. It gets what the first one claimed and still holds.
local function claimed_before()
  local record = redis.call('GET', claims_key(caller))
  local held = {}
  if record and string.sub(record, 1, #nonce + 1) == nonce .. '\n' then
    for id in string.gmatch(string.sub(record, #nonce + 2), '[^\n]+') do
      local job = load_job(id)
      if job and job.state == 'active' and job.token == token then held[#held + 1] = job end
    end
  end
  return held
end

-- Moves due jobs of every name to waiting, in order of (run_at, id), and returns the earliest instant
-- at which a delayed one of these queues falls due, and that job's id.
local function promote_due()
  local next_run_at, next_id, room = nil, nil, promote_limit
  for _, queue in ipairs(queues) do
    local key = delayed_key(queue)
    local head = redis.call('ZRANGE', key, '0', '0', 'WITHSCORES')
    if head[1] and tonumber(head[2]) <= NOW and room > 0 then
      local due =
        redis.call('ZRANGE', key, '-inf', NOW_TEXT, 'BYSCORE', 'LIMIT', '0', text(room))
      room = room - #due
      for _, id in ipairs(due) do
        local job = load_job(id)
        if job and job.state == 'delayed' then
          move(job, 'waiting', {})
        else
          redis.call('ZREM', key, id)
        end
      end
      apply_moves()
      head = redis.call('ZRANGE', key, '0', '0', 'WITHSCORES')
    end
    local at = tonumber(head[2])
    if at and (not next_run_at or at < next_run_at) then next_run_at, next_id = at, head[1] end
  end
  return next_run_at, next_id
end

-- The best `wanted` of one queue across the names asked for, by place in line.
local function heads(queue, first_pair, wanted)
  local best = {}
  for offset = 0, #names - 1 do
    local pair = pairs_asked[first_pair + offset]
    if seen[first_pair + offset] then
      local key = waiting_key(queue, pair.name)
      local found = redis.call('ZRANGE', key, '0', text(wanted - 1), 'WITHSCORES')
      pair.found, pair.taken, pair.all = #found / 2, 0, #found / 2 < wanted
      for i = 1, #found, 2 do
        best[#best + 1] = { id = found[i], score = tonumber(found[i + 1]), pair = pair, key = key }
      end
    end
  end
  if #names > 1 then table.sort(best, function(a, b) return a.score < b.score end) end
  return best
end

-- Takes the jobs out of line. A member without a waiting record (deleted by hand, evicted) is dropped
-- from the set and costs nobody a slot twice.
local function take()
  local taken = {}
  for q, queue in ipairs(queues) do
    local wanted = limit - #taken
    if wanted > 0 and not PAUSED[queue] then
      local best = heads(queue, (q - 1) * #names + 1, wanted)
      for i = 1, math.min(wanted, #best) do
        local job = load_job(best[i].id)
        best[i].pair.taken = best[i].pair.taken + 1
        if job and job.state == 'waiting' then
          taken[#taken + 1] = job
        else
          redis.call('ZREM', best[i].key, best[i].id)
          if not job then
            redis.call('ZREM', index_key('waiting', queue, best[i].pair.name), best[i].id)
          end
        end
      end
    end
  end
  return taken
end

local function lock(taken)
  local ids = {}
  for i, job in ipairs(taken) do
    job.token, job.worker, job.processed_at = token, worker ~= '' and worker or false, NOW_TEXT
    job.lock_expires_at = text(NOW + lock_ms)
    local set = { 'token', token, 'processed_at', NOW_TEXT }
    if job.worker then set[5], set[6] = 'worker', worker end
    move(job, 'active', set)
    ids[i] = job.id
  end
  apply_moves()
  -- The TTL only collects garbage: it outlives the longest time a store repeats a call.
  redis.call('SET', claims_key(caller), nonce .. '\n' .. table.concat(ids, '\n'), 'PX', '60000')
end

-- Wake-ups chain: a name that still has runnable jobs gets its marker again, so the next idle worker
-- comes; one that has none loses it, so nobody is woken in vain.
local function rearm()
  local spent = {}
  for i, pair in ipairs(pairs_asked) do
    if seen[i] and not PAUSED[pair.queue] then
      local left
      if not pair.found or not pair.all then
        left = redis.call('EXISTS', waiting_key(pair.queue, pair.name)) == 1
      else
        left = pair.found > pair.taken
      end
      if left then wake(pair.queue, pair.name) else spent[#spent + 1] = wake_key(pair.queue, pair.name) end
    end
  end
  if #spent > 0 then redis.call('DEL', unpack(spent)) end
end

local taken = repeated and claimed_before() or {}
local next_run_at, next_id = promote_due()
if #taken == 0 then
  taken = take()
  if #taken > 0 then lock(taken) end
  rearm()
end
-- A caller that is full now cannot look when the next delayed job falls due: somebody else must know.
if next_id and #taken == limit then
  local job = load_job(next_id)
  if job and not PAUSED[job.queue] then wake(job.queue, job.name) end
end

local reply = { 'claimed', NOW_TEXT, next_run_at and text(next_run_at) or '' }
if #taken > 0 then
  local payloads = {}
  for i, job in ipairs(taken) do payloads[i] = payload_key(job.id) end
  payloads = redis.call('MGET', unpack(payloads))
  for i, job in ipairs(taken) do reply[#reply + 1] = record_of(job, payloads[i]) end
end
return reply
