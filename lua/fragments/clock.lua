-- The instant of this call, in milliseconds: the caller's in tests, the server's in production, so
-- that no two workers can disagree about a lock. The one place that reads TIME.
-- include: text
local NOW
if ARGV[1] == '' then
  local time = redis.call('TIME')
  NOW = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
else
  NOW = tonumber(ARGV[1])
end
local NOW_TEXT = text(NOW)
