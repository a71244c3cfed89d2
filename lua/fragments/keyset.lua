-- Reads several sorted sets as one list, in the order of (score, member), from a place given by value.
-- Ties go by the bytes of the member, as in a sorted set; the language's own `<` on strings follows the
-- server's locale, so no comparison of ids uses it.
-- include: keys
-- include: text

local SLICE = 64

local function bytes_before(a, b)
  local shorter = math.min(#a, #b)
  for i = 1, shorter do
    local x, y = string.byte(a, i), string.byte(b, i)
    if x ~= y then return x < y end
  end
  return #a < #b
end

-- The rank of the first member of `key` at or behind (score, id), and whether that member is `id`.
-- Binary search among the members of the same score: a tie group may be a million long.
local function rank_of(key, score, id)
  local low = redis.call('ZCOUNT', key, '-inf', '(' .. score)
  local high = low + redis.call('ZCOUNT', key, score, score)
  local last = high
  while low < high do
    local middle = math.floor((low + high) / 2)
    if bytes_before(redis.call('ZRANGE', key, text(middle), text(middle))[1], id) then
      low = middle + 1
    else
      high = middle
    end
  end
  local there = low < last and redis.call('ZRANGE', key, text(low), text(low))[1] == id
  return low, there
end

-- Reads the next slice of a source; false when it has no more.
local function refill(source)
  local first, last
  if source.descending then
    first, last = math.max(source.at - source.slice + 1, 0), source.at
    source.at = first - 1
  else
    first, last = source.at, math.min(source.at + source.slice, source.size) - 1
    source.at = last + 1
  end
  source.slice, source.next = SLICE, 1
  source.members = {}
  if last < first then return false end
  local found = redis.call('ZRANGE', source.key, text(first), text(last), 'WITHSCORES')
  for i = 1, #found, 2 do
    local at = source.descending and (#found - i) or i
    source.members[(i + 1) / 2] = { id = found[at], score = tonumber(found[at + 1]), source = source }
  end
  return true
end

local function head_of(source)
  if source.next > #source.members and not refill(source) then return nil end
  return source.members[source.next]
end

-- Returns a function that gives one member after the other: {id, score, source}, nil at the end, and a
-- function that says whether there is another. `sources` are tables with a `key`; `from` is nil or
-- {score text, id}, the member after which reading goes on, whether it still exists or not.
local function merged(sources, descending, from, wanted)
  local heap = {}
  local slice = math.min(SLICE, math.ceil(wanted / math.max(#sources, 1)) + 1)

  local function before(a, b)
    local x, y = a.members[a.next], b.members[b.next]
    if x.score ~= y.score then return (x.score < y.score) ~= descending end
    return bytes_before(x.id, y.id) ~= descending
  end
  local function sink(at)
    while true do
      local least, left = at, 2 * at
      if left <= #heap and before(heap[left], heap[least]) then least = left end
      if left + 1 <= #heap and before(heap[left + 1], heap[least]) then least = left + 1 end
      if least == at then return end
      heap[at], heap[least] = heap[least], heap[at]
      at = least
    end
  end

  for _, source in ipairs(sources) do
    source.size = redis.call('ZCARD', source.key)
    if source.size > 0 then
      source.descending, source.slice, source.next, source.members = descending, slice, 1, {}
      source.at = descending and source.size - 1 or 0
      if from then
        local rank, there = rank_of(source.key, from[1], from[2])
        source.at = descending and rank - 1 or rank + (there and 1 or 0)
      end
      if head_of(source) then heap[#heap + 1] = source end
    end
  end
  for at = math.floor(#heap / 2), 1, -1 do sink(at) end

  local function take()
    local source = heap[1]
    if not source then return nil end
    local member = source.members[source.next]
    source.next = source.next + 1
    if not head_of(source) then
      heap[1] = heap[#heap]
      heap[#heap] = nil
    end
    sink(1)
    return member
  end
  return take, function() return heap[1] ~= nil end
end
