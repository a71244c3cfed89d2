-- Script:  peek_outbox
-- Version: 2
-- Args:    now limit after
-- Moves:   - (reads only)
-- Returns: ok, then for each entry: id, parent, child, outcome, has_exit, exit, reason
-- Events:  -
--
-- Atomic so that an entry is read whole. Reading consumes nothing; `after` is the id of an entry, whether it
-- still exists or not.
-- include: meta
local _, refusal = open_store({})
if refusal then return refusal end

local first = ARGV[3] == '' and '-inf' or '(' .. ARGV[3]
local entries = redis.call('ZRANGE', OUTBOX_KEY, first, '+inf', 'BYSCORE', 'LIMIT', '0', ARGV[2])
local reply = { 'ok' }
for _, entry in ipairs(entries) do
  local found = redis.call('HMGET', report_key(entry), 'parent', 'id', 'outcome', 'exit', 'reason')
  for _, value in ipairs({
    entry, found[1] or '', found[2] or '', found[3] or '', found[4] and '1' or '0', found[4] or '',
    found[5] or '',
  }) do
    reply[#reply + 1] = value
  end
end
return reply
