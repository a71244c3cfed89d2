-- Script:  delete_outbox
-- Version: 1
-- Args:    now entry*
-- Moves:   - (deletes reports that have been carried)
-- Returns: ok, number deleted
-- Events:  -
--
-- Atomic because an entry and its place in the line go together. Unknown ids are ignored.
-- include: meta
-- include: text
local _, refusal = open_store({})
if refusal then return refusal end

local deleted = 0
for i = 2, #ARGV do
  deleted = deleted + redis.call('ZREM', OUTBOX_KEY, ARGV[i])
  redis.call('DEL', report_key(ARGV[i]))
end
return { 'ok', text(deleted) }
