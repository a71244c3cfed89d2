-- What a list asks for, read from its arguments, and the sorted sets that can answer it.
-- include: meta
local kind, descending = ARGV[2], ARGV[3] == 'desc'
local limit, budget, wide = tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6] == '1'
local from = ARGV[7] == '1' and { ARGV[8], ARGV[9] } or nil
local wanted_queue, wanted_name = ARGV[10], ARGV[11]

local states, wanted_states, metadata, at = {}, {}, {}, 12
for i = at + 1, at + tonumber(ARGV[at]) do
  states[#states + 1] = ARGV[i]
  wanted_states[ARGV[i]] = true
end
at = at + 1 + #states
for i = at + 1, at + 2 * tonumber(ARGV[at]), 2 do
  metadata[#metadata + 1] = { key = ARGV[i], value = ARGV[i + 1] }
end
at = at + 1 + 2 * #metadata

local ready_fields, metadata_fields = {}, {}
for i, pair in ipairs(metadata) do
  ready_fields[i] = 'ready:' .. pair.key
  metadata_fields[i] = 'metadata:' .. pair.key
end

local function sets_of_states()
  if kind == 'delayed' then
    return { { key = delayed_key(wanted_queue), state = 'delayed', queue = wanted_queue } }
  end
  local key_of_set, sources = kind == 'finished' and finished_key or index_key, {}
  for i = at, #ARGV, 2 do
    local queue, name = ARGV[i], ARGV[i + 1]
    for _, state in ipairs(states) do
      sources[#sources + 1] =
        { key = key_of_set(state, queue, name), state = state, queue = queue, name = name }
    end
  end
  return sources
end

-- The smallest index of a declared metadata key, when it is smaller than what the states come to.
local function narrower(sources, ready)
  -- What other calls read is not known here: then any index is taken to be the smaller one.
  local best, least = nil, wide and math.huge or 0
  for _, source in ipairs(wide and {} or sources) do least = least + redis.call('ZCARD', source.key) end
  for i, pair in ipairs(metadata) do
    if ready[i] then
      local size = redis.call('ZCARD', metadata_key(pair.key, pair.value))
      if size < least then
        best, least = { key = metadata_key(pair.key, pair.value), pair = pair }, size
      end
    end
  end
  return best
end
