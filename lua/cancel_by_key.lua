-- Script:  cancel_by_key
-- Version: 2
-- Args:    now nonce repeated name key
-- Moves:   waiting -> cancelled, delayed -> cancelled, waiting-children -> cancelled, active -> active
-- Returns: cancelled | cancel_requested | none, id of the job or ''
-- Events:  control (the worker that holds it), done (awaited jobs that were cancelled)
--
-- Atomic because the key is read in the step that cancels what it names: between the two it could pass to
-- a newer job. A landed cancel frees the key, so the answer is kept beside it for a repeated call.
-- include: cancel
local nonce, name, key = ARGV[2], ARGV[4], ARGV[5]
local _, refusal = open_store({})
if refusal then return refusal end

if ARGV[3] == '1' then
  local before = redis.call('GET', answered_key(nonce))
  if before then
    local word, id = string.match(before, '^(%S+) (.*)$')
    return { word, id }
  end
end
local holder = holder_of(name, key)
local job = holder and holder.job
if not job or FINISHED[job.state] then return { 'none', '' } end

local word = cancel(job, function(_, set) return set end)
write_later('SET', answered_key(nonce), word .. ' ' .. job.id, 'PX', '60000')
apply_moves()
return { word, job.id }
