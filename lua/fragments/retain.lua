-- Retention. A policy is text: for each finished state that has one `<state>=<count>/<age in ms>`, or
-- `*=<count>/<age in ms>` for all of them, `*` for a rule that is not given. It stands on the record (`keep`),
-- or in `extra` when it is too long.
-- include: outlived

-- Peers removed by one call, whatever policies say, and however many jobs it finishes; each of those may
-- remove one in any case, so that a set that is full stays as it is. The pruner does the rest.
local PRUNE_BATCH = 50

-- A job that goes in the step that ends it takes along what its ack and its enqueue are recognised by when
-- they are sent again. Both are kept apart for so long, which is more than a store goes on repeating them.
local REMEMBERED_MS = '10000'
local function ack_key(token, id) return answered_key(token .. ':' .. id) end
read_too('nonce')

-- The stricter of two limits; nil for none.
local function stricter(a, b)
  return a and b and math.min(a, b) or a or b
end

-- Returns count and age of a job's policy for a state; nil for what it does not limit.
local function policy_of(job, state)
  local policy = job.keep
  if policy == '' then policy = redis.call('HGET', extra_key(job.id), 'keep') end
  if not policy then return nil, nil end
  local count, age = string.match(' ' .. policy, ' ' .. state .. '=([%d*]+)/([%d*]+)')
  if not count then count, age = string.match(policy, '^%*=([%d*]+)/([%d*]+)') end
  return tonumber(count), tonumber(age)
end

-- A job that is not kept at all goes in the step that finishes it.
local function take_away(job)
  erase(job)
  job.gone = true
  if job.nonce then write_later('SET', answered_key(job.nonce), job.id, 'PX', REMEMBERED_MS) end
  if job.acked_token then
    write_later('SET', ack_key(job.acked_token, job.id), job.acked_as, 'PX', REMEMBERED_MS)
  end
end

local rules, rule_keys, undecided = {}, {}, {}

-- What jobs that this call has finished do to their peers of the same queue, name and state: each by its own
-- policy, so the strictest of them. Done once, when all of them stand among their peers.
local function retain_all()
  -- Whether a parent owes cancels is known only now.
  for _, job in ipairs(undecided) do
    if not owes_cancels(job) then take_away(job) end
  end
  apply_moves()
  local room = PRUNE_BATCH
  for _, key in ipairs(rule_keys) do
    local rule = rules[key]
    local removed = prune_set(key, rule.state, rule.count, rule.age, room + rule.finished)
    room = room - math.max(removed - rule.finished, 0)
  end
  rules, rule_keys, undecided = {}, {}, {}
end

-- Notes the policy of a job that is about to finish; true when the job is to be taken away instead.
local function retain(job, state)
  local count, age = policy_of(job, state)
  if not count and not age then return false end
  local key = finished_key(state, job.queue, job.name)
  if not rules[key] then
    rules[key], rule_keys[#rule_keys + 1] = { state = state, finished = 0 }, key
    after_moves = retain_all
  end
  local rule = rules[key]
  rule.count, rule.age, rule.finished = stricter(rule.count, count), stricter(rule.age, age), rule.finished + 1
  local keeps_none = count == 0 or age == 0
  if keeps_none and not job.flow then return true end
  if keeps_none then undecided[#undecided + 1] = job end
  if age or keeps_none then plan(entering, EXPIRES_KEY, text(NOW + (keeps_none and 0 or age)), job.id) end
  return false
end
