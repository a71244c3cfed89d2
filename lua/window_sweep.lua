-- Script:  window_sweep
-- Version: 1
-- Args:    now limit
-- Moves:   - (deletes dedup windows that are over)
-- Returns: ok, number of windows looked at
-- Events:  -
--
-- Atomic because a window is judged and deleted in one step: an enqueue that takes the key again, or
-- pushes its end out, can never lose it to the sweep.
-- include: clock
-- include: meta
local _, refusal = open_store({})
if refusal then return refusal end

local over = redis.call('ZRANGE', WINDOWS_KEY, '-inf', NOW_TEXT, 'BYSCORE', 'LIMIT', '0', ARGV[2])
if #over > 0 then redis.call('ZREM', WINDOWS_KEY, unpack(over)) end
for _, member in ipairs(over) do
  local key = dedup_key(string.match(member, '^([^:]*):(.*)$'))
  local ends_at = redis.call('HGET', key, 'until')
  if ends_at and tonumber(ends_at) <= NOW then redis.call('DEL', key) end
end
return { 'ok', text(#over) }
