-- Script:  enqueue
-- Version: 3
-- Args:    now repeated item* (see read_items)
-- Moves:   - -> waiting | delayed, delayed -> delayed
-- Returns: ok, then for each item: enqueued | duplicate | replaced, name of the job, its id when a dedup key names it
-- Events:  wake
--
-- Atomic because the id is taken, the place in line given and the wake-up owed in one step. The payload's
-- SET NX is the guard and the first write: an id that exists, in any state, is left as it is, and a full
-- server refuses before anything is half-written. An item whose nonce stands on the record is this same
-- call, sent again because its reply was lost. A dedup key is decided in the same step, after the id: of
-- many producers one takes it and all others are told its job.
-- include: insert
local items = read_items(3)
local refusal = open_for(items)
if refusal then return refusal end

local reply = { 'ok' }
for _, item in ipairs(items) do
  local word, name, keyed_id = take_in(item)
  if not word then
    apply_inserts()
    return order_used_up()
  end
  reply[#reply + 1] = word
  reply[#reply + 1] = name
  reply[#reply + 1] = keyed_id or ''
end
apply_inserts()
return reply
