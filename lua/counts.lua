-- Script:  counts
-- Version: 2
-- Args:    now (queue name)*
-- Moves:   - (reads only)
-- Returns: ok, then a number for each state in the order of the list below
-- Events:  -
--
-- Atomic so that a job that moves is counted once. One ZCARD a set, however many jobs there are; no
-- counter exists that could drift from the sets.
-- include: text
-- include: meta
local STATES = {
  'waiting', 'delayed', 'active', 'waiting-children', 'completed', 'failed', 'cancelled',
}
local _, refusal = open_store({})
if refusal then return refusal end

local reply = { 'ok' }
for s, state in ipairs(STATES) do
  local total = 0
  for i = 2, #ARGV, 2 do
    total = total + redis.call('ZCARD', index_key(state, ARGV[i], ARGV[i + 1]))
  end
  reply[s + 1] = text(total)
end
return reply
