-- Script:  remove
-- Version: 2
-- Args:    now nonce repeated states id*
-- Moves:   waiting -> -, delayed -> -, completed -> -, failed -> -, cancelled -> -
-- Returns: ok, then a word an id: removed | not_removable | changed | not_found
-- Events:  -
--
-- Atomic because record, payload, ledger, exits, every index member and a pending dedup key go together: a
-- claim can never meet half a job. A removed job leaves nothing to recognise it by, so the ids are kept for
-- a minute beside the nonce, for this same call sent again because its reply was lost.
-- include: erase
-- include: among
local nonce, states = ARGV[2], ARGV[4]
local _, refusal = open_store({})
if refusal then return refusal end

local removed_before = {}
if ARGV[3] == '1' then
  for id in string.gmatch(redis.call('GET', answered_key(nonce)) or '', '[^\n]+') do
    removed_before[id] = true
  end
end

local reply, removed = { 'ok' }, {}
for i = 5, #ARGV do
  local job = not removed_before[ARGV[i]] and load_job(ARGV[i])
  local word = removed_before[ARGV[i]] and 'removed' or 'not_found'
  if job and (job.state == 'active' or job.state == 'waiting-children') then
    word = 'not_removable'
  elseif job and not is_among(states, job.state) then
    word = 'changed'
  elseif job then
    erase(job)
    removed[#removed + 1] = job.id
    removed_before[job.id] = true
    word = 'removed'
  end
  reply[#reply + 1] = word
end
if #removed > 0 then
  write_later('SET', answered_key(nonce), table.concat(removed, '\n'), 'PX', '60000')
end
apply_moves()
return reply
