-- Reads several sorted sets as one list, in the order of (score, member), from a place given by value.
-- Ties go by the bytes of the member, as in a sorted set; the language's own `<` on strings follows the
-- server's locale, so no comparison of ids uses it.
-- include: keys
-- include: text

local LONGEST_SLICE = 64

-- An id as numbers of six bytes each, in base 257 so that a byte of value 0 stands behind the end and
-- every number is exact. Ids made in one moment share most of their bytes: comparing them byte by byte,
-- again and again, would cost more than all else.
local function pack_id(id)
  local packed = {}
  for at = 1, #id, 6 do
    local a, b, c, d, e, f = string.byte(id, at, at + 5)
    packed[#packed + 1] = ((((a + 1) * 257 + (b or -1) + 1) * 257 + (c or -1) + 1) * 257 + (d or -1) + 1)
      * 66049 + ((e or -1) + 1) * 257 + (f or -1) + 1
  end
  return packed
end

-- Whether the first of two packed ids stands before the second in the order of bytes.
local function bytes_before(a, b)
  local at = 1
  while a[at] and a[at] == b[at] do at = at + 1 end
  return (a[at] or 0) < (b[at] or 0)
end

-- The rank of the first member of `key` at or behind (score, id), and whether that member is `id`.
-- Binary search among the members of the same score: a tie group may be a million long.
local function rank_of(key, score, id)
  local low = redis.call('ZCOUNT', key, '-inf', '(' .. score)
  local high = low + redis.call('ZCOUNT', key, score, score)
  local last, packed = high, pack_id(id)
  while low < high do
    local middle = math.floor((low + high) / 2)
    if bytes_before(pack_id(redis.call('ZRANGE', key, text(middle), text(middle))[1]), packed) then
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
  source.slice, source.next = math.min(source.slice * 2, LONGEST_SLICE), 1
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
  local slice = math.min(LONGEST_SLICE, math.ceil(wanted / math.max(#sources, 1)) + 1)

  local function before(a, b)
    local x, y = a.members[a.next], b.members[b.next]
    if x.score ~= y.score then return (x.score < y.score) ~= descending end
    x.packed, y.packed = x.packed or pack_id(x.id), y.packed or pack_id(y.id)
    return bytes_before(x.packed, y.packed) ~= descending
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
