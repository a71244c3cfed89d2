-- Script:  schedules
-- Version: 1
-- Args:    now kind limit score member
-- Moves:   - (reads; drops members whose record is gone)
-- Returns: ok, now, when the next one is due or '', then for each schedule: score, member, fields and values
-- Events:  -
--
-- Atomic so that a schedule is read with the place it stands at. `kind` is `due`, what has come by now, or
-- `live` or `paused`, all of one set, from behind (score, member) on.
-- include: clock
-- include: keyset
-- include: meta
local kind, limit = ARGV[2], tonumber(ARGV[3])
local _, refusal = open_store({})
if refusal then return refusal end

local key = kind == 'paused' and PAUSED_SCHEDULES_KEY or SCHEDULES_KEY
local from = ARGV[4] ~= '' and { ARGV[4], ARGV[5] } or nil
local take = merged({ { key = key } }, false, from, limit)
local reply, gone = { 'ok', NOW_TEXT, '' }, {}
for _ = 1, limit do
  local member = take()
  if not member then break end
  if kind == 'due' and member.score > NOW then
    reply[3] = text(member.score)
    break
  end
  local fields = redis.call('HGETALL', schedule_key(string.match(member.id, '^([^:]*):(.*)$')))
  if #fields == 0 then gone[#gone + 1] = member.id end
  reply[#reply + 1] = { text(member.score), member.id, fields }
end
if #gone > 0 then redis.call('ZREM', key, unpack(gone)) end
return reply
