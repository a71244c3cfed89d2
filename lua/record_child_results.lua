-- Script:  record_child_results
-- Version: 2
-- Args:    now nonce repeated (parent born key outcome has_exit exit)*
-- Moves:   waiting-children -> waiting, waiting-children -> failed
-- Returns: ok, then for each report: applied | ignored
-- Events:  wake, done (awaited parents that failed)
--
-- Atomic because the last report and the settling of its parent are one step: of any number of relays one
-- settles it, once. All rows of a call are written first, so a call that brings a failure and the last
-- result settles as failed. A child's first report stands; later and unknown ones are ignored. A call sent
-- again because its reply was lost finds what it did by its nonce, a character for each report.
-- include: finish
-- include: flow
local parents, list, known = {}, {}, {}
for i = 4, #ARGV, 6 do
  if not known[ARGV[i]] then
    known[ARGV[i]] = true
    parents[#parents + 1] = ARGV[i]
    list[#list + 1] = load_job(ARGV[i])
  end
end
local _, refusal = open_store(queues_of(list))
if refusal then return refusal end

local before = ARGV[3] == '1' and redis.call('GET', answered_key(ARGV[2]))
if before then
  local reply = { 'ok' }
  for letter in string.gmatch(before, '.') do reply[#reply + 1] = letter == 'a' and 'applied' or 'ignored' end
  return reply
end

local failed_child, touched, reply, letters = {}, {}, { 'ok' }, ''
for i = 4, #ARGV, 6 do
  local id, born, key, outcome = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
  local job = load_job(id)
  -- A parent of another instant had this id before; its children are none of this one's.
  local open = job and job.flow and (born == '' or born == job.enqueued_at)
    and redis.call('ZREM', pending_key(id), key) == 1
  if open then
    redis.call('ZREM', unstarted_key(id), key)
    redis.call('HSET', outcomes_key(id), key, outcome)
    redis.call('HINCRBY', flow_key(id), outcome, '1')
    if ARGV[i + 4] == '1' then redis.call('HSET', results_key(id), key, ARGV[i + 5]) end
    touched[id] = true
    if outcome == 'failed' and not failed_child[id] then failed_child[id] = key end
  end
  reply[#reply + 1] = open and 'applied' or 'ignored'
  letters = letters .. (open and 'a' or '-')
end

-- At most 40 bytes of a key, no character cut in two: the reason stays short on the record.
local function shortened(key)
  local length = math.min(#key, 40)
  while length < #key and length > 0 and string.find(key, '^[\128-\191]', length + 1) do length = length - 1 end
  return string.sub(key, 1, length)
end

local function fail(job, key)
  job.failed_reason = 'child ' .. shortened(key) .. ' failed'
  local set = { 'failed_reason', job.failed_reason }
  abandon_children(job.id)
  append_run(job, set, 'failed', nil, nil, nil)
  finish(job, 'failed', set, {})
end

for _, id in ipairs(parents) do
  local job = load_job(id)
  if touched[id] and job.state == 'waiting-children' then
    if failed_child[id] and redis.call('HGET', flow_key(id), 'mode') == 'fail' then
      fail(job, failed_child[id])
    elseif redis.call('EXISTS', pending_key(id)) == 0 then
      redis.call('ZREM', FLOWS_KEY, id)
      job.seq = next_seq()
      move(job, 'waiting', { 'seq', job.seq })
    end
  end
end
apply_moves()
-- A call that changed nothing has nothing to recognise: its repeat is judged anew.
if string.find(letters, 'a', 1, true) then redis.call('SET', answered_key(ARGV[2]), letters, 'PX', '60000') end
return reply
