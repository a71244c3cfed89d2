-- The store's own hash. Fields: schema, created, `seen:<queue>:<name>` for every pair that ever held
-- a job, `paused:<queue>`. A script reads all it must check in one HMGET. A missing hash is an empty
-- store (a FLUSHALL happened), never a mismatch.
-- include: keys
local SCHEMA = '1'
local PAUSED = {}

-- Learns which of `queues` are paused and returns the values of `fields` and nil, or nil and the
-- error reply for a keyspace that this release does not speak.
local function open_store(queues, fields)
  local asked = { 'schema' }
  for _, queue in ipairs(queues) do asked[#asked + 1] = 'paused:' .. queue end
  for _, field in ipairs(fields or {}) do asked[#asked + 1] = field end
  local found = redis.call('HMGET', META_KEY, unpack(asked))
  if found[1] and found[1] ~= SCHEMA then
    return nil, redis.error_reply('MQSCHEMA ' .. found[1] .. ' found, this mq speaks ' .. SCHEMA)
  end
  for i, queue in ipairs(queues) do PAUSED[queue] = found[1 + i] and true or nil end
  local values = {}
  for i = 1, #asked - 1 - #queues do values[i] = found[1 + #queues + i] end
  return values, nil
end

-- The distinct queues of a list of jobs, in order of appearance.
local function queues_of(list)
  local queues, known = {}, {}
  for _, job in ipairs(list) do
    if job and not known[job.queue] then
      known[job.queue] = true
      queues[#queues + 1] = job.queue
    end
  end
  return queues
end
