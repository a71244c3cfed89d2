-- Taking finished jobs that are past their retention out of a set, the oldest first, a bounded number.
-- include: erase

-- Parents that owe cancels and stand at the old end of one set: so many are stepped over in one call.
local MOST_OWING = 200

-- Ranks by place in line among the jobs of one instant: of more than this many, those whose ids come first.
local MOST_TIED = '1000'

-- Ids at the old end of a finished set, by finish time, then place in line: where the cut falls among jobs
-- of one instant, their seq decides.
local function oldest(key, number)
  local found = redis.call('ZRANGE', key, '0', text(number - 1), 'WITHSCORES')
  local ids, last = {}, found[#found]
  for i = 1, #found, 2 do
    if found[i + 1] ~= last then ids[#ids + 1] = found[i] end
  end
  if not last then return ids end
  local tied, cut = {}, number - #ids
  for i, id in ipairs(redis.call('ZRANGE', key, last, last, 'BYSCORE', 'LIMIT', '0', MOST_TIED)) do
    tied[i] = { id = id, score = tonumber(redis.call('HGET', job_key(id), 'seq') or 0) or 0 }
  end
  table.sort(tied, function(a, b) return a.score < b.score end)
  for i = 1, math.min(cut, #tied) do ids[#ids + 1] = tied[i].id end
  return ids
end

-- Ids at the old end of a set, up to a score.
local function aged(key, before, number)
  return redis.call('ZRANGE', key, '-inf', before, 'BYSCORE', 'LIMIT', '0', text(number))
end

-- Erases the jobs that `read(number)` names, at most `room` of them and of the first `most`; a member without
-- a finished job, or with one of another state than the one given, is dropped from the set. A flow parent
-- that still owes cancels to children stays, and those behind it are reached all the same.
local function erase_outlived(key, state, room, most, read)
  local removed, stays, staying = 0, {}, 0
  while staying < MOST_OWING do
    local number = math.min(room - removed, most - removed - staying)
    local ids = number > 0 and read(staying + number) or {}
    if #ids <= staying then break end
    for _, id in ipairs(ids) do
      local job = not stays[id] and load_job(id)
      local finished = job and FINISHED[job.state] and job.state == (state or job.state)
      if finished and owes_cancels(job) then
        stays[id], staying = true, staying + 1
      elseif not stays[id] then
        if finished then erase(job) else plan(leaving, key, id) end
        removed = removed + 1
      end
    end
    apply_moves()
  end
  return removed
end

-- Applies count and age to one finished set, at most `room` removals, and returns how many it made.
local function prune_set(key, state, count, age, room)
  local removed = 0
  if age then
    local before = text(NOW - age)
    removed = erase_outlived(key, state, room, math.huge, function(number) return aged(key, before, number) end)
  end
  if count and removed < room then
    local excess = redis.call('ZCARD', key) - count
    removed = removed
      + erase_outlived(key, state, room - removed, excess, function(number) return oldest(key, number) end)
  end
  return removed
end
