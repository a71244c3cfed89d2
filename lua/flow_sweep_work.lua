-- Script:  flow_sweep_work
-- Version: 2
-- Args:    now pending_age_ms limit
-- Moves:   - (hands out rows that need a look, and does nothing to their jobs)
-- Returns: ok, then for each row: parent, key, owed | owed_unstarted | unstarted | started, row
-- Events:  -
--
-- Atomic because a row that is handed out waits a full age again: sweepers share the work without a lock, it
-- rotates, and a row whose child cannot be reached holds up no other. Cancels that are owed come first;
-- such a row is told as unstarted once: who was about to enqueue its child has had a full age when it comes again.
-- include: clock
-- include: job
-- include: meta
local age, room = tonumber(ARGV[2]), tonumber(ARGV[3])
local _, refusal = open_store({})
if refusal then return refusal end

local reply = { 'ok' }
redis.call('ZREM', ACTIVE_KEY, '')

-- Hands out rows of `set` with a score of at most `before`, and scores them and their parent anew.
local function hand_out(registry, set, before, again, word_of)
  local parents = redis.call('ZRANGE', registry, '-inf', text(before), 'BYSCORE', 'LIMIT', '0', text(room))
  for _, id in ipairs(parents) do
    if room <= 0 then return end
    local key = set(id)
    local found = redis.call('ZRANGE', key, '-inf', text(before), 'BYSCORE', 'LIMIT', '0', text(room))
    for _, child in ipairs(found) do
      redis.call('ZADD', key, text(again), child)
      for _, value in ipairs({
        id, child, word_of(id, child), redis.call('HGET', rows_key(id), child) or '',
      }) do
        reply[#reply + 1] = value
      end
    end
    room = room - #found
    local head = redis.call('ZRANGE', key, '0', '0', 'WITHSCORES')
    if head[1] then redis.call('ZADD', registry, head[2], id) else redis.call('ZREM', registry, id) end
  end
end

hand_out(OWING_KEY, owed_key, NOW, NOW + age, function(id, child)
  return redis.call('ZREM', unstarted_key(id), child) == 1 and 'owed_unstarted' or 'owed'
end)
hand_out(FLOWS_KEY, pending_key, NOW - age, NOW, function(id, child)
  return redis.call('ZSCORE', unstarted_key(id), child) and 'unstarted' or 'started'
end)
return reply
