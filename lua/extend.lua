-- Script:  extend
-- Version: 2
-- Args:    now lock_ms (id token)*
-- Moves:   active -> active
-- Returns: ok, then a word an item: extended | cancel_requested | lost
-- Events:  -
--
-- Atomic because a lock is extended only while its token holds it; the same answer carries pending
-- cancels, so the heartbeat alone is enough for a worker to hear of one.
-- include: clock
-- include: job
-- include: meta
local _, refusal = open_store({})
if refusal then return refusal end

local expiry = text(NOW + tonumber(ARGV[2]))
local reply, scores = { 'ok' }, {}
for i = 3, #ARGV, 2 do
  local job = load_job(ARGV[i])
  if job and job.state == 'active' and job.token == ARGV[i + 1] then
    scores[#scores + 1] = expiry
    scores[#scores + 1] = job.id
    reply[#reply + 1] = job.cancel_requested and 'cancel_requested' or 'extended'
  else
    reply[#reply + 1] = 'lost'
  end
end
if #scores > 0 then
  -- ZADD counts as growing; behind a ZREM a full server accepts it, and locks do not all expire.
  redis.call('ZREM', ACTIVE_KEY, '')
  redis.call('ZADD', ACTIVE_KEY, unpack(scores))
end
return reply
