-- The shape of what a person asks for: a nonce and a batch of ids in, for each id a word and the state it
-- was found in out. The nonce stands on the record with what was answered, so that a call sent
-- again because its reply was lost is told the same; a new call is judged by the state it finds.
-- include: clock
-- include: move
-- include: among

-- What this very call did to jobs that went away with it (a cancel, under a policy that keeps none), by id.
local function read_gone(nonce)
  local gone = {}
  for line in string.gmatch(redis.call('GET', answered_key(nonce)) or '', '[^\n]+') do
    local word, state, id = string.match(line, '^(%S+) (%S+) (.*)$')
    gone[id] = { word, state }
  end
  return gone
end

-- Runs `act(job, answered)` for every job in one of the `accepted` states and of those that are meant;
-- `answered(word, set)` is what it writes with the change. Any other job answers `refusal`, or `changed`.
local function steer(field, accepted, refusal, act)
  local nonce, states = ARGV[2] .. ':', ARGV[3]
  read_too(field)
  local list = {}
  for i = 4, #ARGV do list[i - 3] = load_job(ARGV[i]) end
  local _, schema_error = open_store(queues_of(list))
  if schema_error then return schema_error end
  local reply, done, before_gone = { 'ok' }, {}, nil
  for i, job in ipairs(list) do
    local word, state = 'not_found', ''
    if not job then
      before_gone = before_gone or read_gone(ARGV[2])
      local before = before_gone[ARGV[i + 3]]
      if before then word, state = before[1], before[2] end
    else
      state = job.state
      local before = job[field]
      if before and string.sub(before, 1, #nonce) == nonce then
        word, state = string.match(string.sub(before, #nonce + 1), '^(%S+) (%S+)$')
      elseif not accepted[state] then
        word = refusal
      elseif not is_among(states, state) then
        word = 'changed'
      else
        word = act(job, function(answer, set)
          job[field] = nonce .. answer .. ' ' .. state
          set[#set + 1] = field
          set[#set + 1] = job[field]
          return set
        end)
        done[#done + 1] = { job = job, line = word .. ' ' .. state .. ' ' .. job.id }
      end
    end
    reply[#reply + 1] = word
    reply[#reply + 1] = state
  end
  apply_moves()
  local gone = {}
  for _, one in ipairs(done) do
    if one.job.gone then gone[#gone + 1] = one.line end
  end
  if #gone > 0 then redis.call('SET', answered_key(ARGV[2]), table.concat(gone, '\n'), 'PX', '60000') end
  return reply
end
