-- The shape of what a person asks for: a nonce and a batch of ids in, for each id a word and the state it
-- was found in out. The nonce stands on the record with what was answered, so that a call sent
-- again because its reply was lost is told the same; a new call is judged by the state it finds.
-- include: clock
-- include: move

-- Runs `decide(job, answered)` for every job; it returns the word, and when it changes the job writes
-- the fields of `answered(word, set)` with the change.
local function steer(field, decide)
  local nonce = ARGV[2] .. ':'
  read_too(field)
  local list = {}
  for i = 3, #ARGV do list[i - 2] = load_job(ARGV[i]) end
  local _, refusal = open_store(queues_of(list))
  if refusal then return refusal end
  local reply = { 'ok' }
  for _, job in ipairs(list) do
    local word, state = 'not_found', ''
    if job then
      state = job.state
      local before = job[field]
      if before and string.sub(before, 1, #nonce) == nonce then
        word, state = string.match(string.sub(before, #nonce + 1), '^(%S+) (%S+)$')
      else
        word = decide(job, function(answer, set)
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
