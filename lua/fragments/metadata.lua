-- Metadata indexes: a sorted set by enqueued_at for each value of a declared key. `indexed` in a job's
-- extra hash says under which keys it stands, and what takes it out follows that, not the declarations.
-- include: move

-- Plans the index entries of a job whose extra hash has these fields, by the declared keys of the store
-- (`indexed` of its hash). Returns the keys it stands under, as `indexed` keeps them, or nil for none.
local function index_metadata(declared, id, since, extra)
  if not declared or #extra == 0 then return nil end
  local keys = {}
  for i = 1, #extra, 2 do
    local key = string.match(extra[i], '^metadata:(.*)$')
    if key and string.find(' ' .. declared .. ' ', ' ' .. key .. ' ', 1, true) then
      plan(entering, metadata_key(key, extra[i + 1]), since, id)
      keys[#keys + 1] = key
    end
  end
  return #keys > 0 and table.concat(keys, ' ') or nil
end

-- Plans that a job leaves the index sets it stands in.
local function unindex_metadata(id)
  local keys = redis.call('HGET', extra_key(id), 'indexed')
  if not keys then return end
  for key in string.gmatch(keys, '%S+') do
    local value = redis.call('HGET', extra_key(id), 'metadata:' .. key)
    if value then plan(leaving, metadata_key(key, value), id) end
  end
end
