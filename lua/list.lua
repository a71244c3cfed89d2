-- Script:  list
-- Version: 1
-- Args:    now kind direction limit budget wide has_from score id queue name state* (key value)* (queue name)*
-- Moves:   - (reads; drops index members whose job is gone or elsewhere)
-- Returns: ok, now, metadata | sets, more, score and id it got to, then for each job: id, score
-- Events:  -
--
-- Atomic so that a job which changes state is met in one of the sets that are merged, never in none or in
-- two. Reads from sorted sets alone and looks at no more than `budget` members, whatever the filters let
-- through. A metadata index drives when it is ready and smaller than the sets of the states; `wide` says
-- that the sets named here are not all.
-- include: clock
-- include: keyset
-- include: question
local ready, refusal = open_store({}, ready_fields)
if refusal then return refusal end

local sources = sets_of_states()
local by_metadata = #metadata > 0 and narrower(sources, ready) or nil
if by_metadata then sources = { by_metadata } end

local stale = {}

-- Whether a member belongs on the page. One that its set should not hold any more is noted for removal.
-- Metadata comes first: it lets the fewest through, and what it keeps back costs no second look.
local function belongs(member)
  local source = member.source
  local values = #metadata > 0 and redis.call('HMGET', extra_key(member.id), unpack(metadata_fields))
  for i, pair in ipairs(values and metadata or {}) do
    if values[i] ~= pair.value then
      if source.pair == pair then stale[#stale + 1] = member end
      return false
    end
  end
  local found = redis.call('HMGET', job_key(member.id), 'state', 'queue', 'name')
  local state, queue, name = found[1], found[2], found[3]
  if not state or not (source.pair or state == source.state)
    or (source.queue and queue ~= source.queue) or (source.name and name ~= source.name) then
    stale[#stale + 1] = member
    return false
  end
  return wanted_states[state]
    and (wanted_queue == '' or queue == wanted_queue) and (wanted_name == '' or name == wanted_name)
end

local take, more = merged(sources, descending, from, limit)
local reply = { 'ok', NOW_TEXT, by_metadata and 'metadata' or 'sets', '0', '', '' }
local found, examined = 0, 0
while found < limit and examined < budget do
  local member = take()
  if not member then break end
  examined = examined + 1
  reply[5], reply[6] = text(member.score), member.id
  if belongs(member) then
    found = found + 1
    reply[#reply + 1] = member.id
    reply[#reply + 1] = text(member.score)
  end
end
if more() then reply[4] = '1' end
for _, member in ipairs(stale) do redis.call('ZREM', member.source.key, member.id) end
return reply
