-- Script:  delete_outbox
-- Version: 2
-- Args:    now entry*
-- Moves:   - (deletes reports that have been carried)
-- Returns: ok
-- Events:  -
--
-- Atomic because an entry and its place in the line go together. Unknown ids are ignored.
-- include: meta
local _, refusal = open_store({})
if refusal then return refusal end

for i = 2, #ARGV do
  redis.call('ZREM', OUTBOX_KEY, ARGV[i])
  redis.call('DEL', report_key(ARGV[i]))
end
return { 'ok' }
