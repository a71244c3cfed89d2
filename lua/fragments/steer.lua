-- The shape of what a person asks for: a nonce and a batch of ids in, for each id a word and the state it
-- was found in out. The nonce stands on the record with what was answered, so that a call sent
-- again because its reply was lost is told the same; a new call is judged by the state it finds.
-- include: clock
-- include: move
-- include: among

-- Runs `act(job, answered)` for every job in one of the `accepted` states and of those that are meant;
-- `answered(word, set)` is what it writes with the change. Any other job answers `refusal`, or `changed`.
local function steer(field, accepted, refusal, act)
  local nonce, states = ARGV[2] .. ':', ARGV[3]
  read_too(field)
  local list = {}
  for i = 4, #ARGV do list[i - 3] = load_job(ARGV[i]) end
  local _, schema_error = open_store(queues_of(list))
  if schema_error then return schema_error end
  local reply = { 'ok' }
  for _, job in ipairs(list) do
    local word, state = 'not_found', ''
    if job then
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
      end
    end
    reply[#reply + 1] = word
    reply[#reply + 1] = state
  end
  apply_moves()
  return reply
end
