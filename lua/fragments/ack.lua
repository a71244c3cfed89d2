-- The shape all acks share: a batch of items, each (id, token, worker, summary, has_exit, exit,
-- delay_ms); one word a job in the reply. Items are read and decided first, then written together.
-- include: lock
local ACK_WIDTH = 7

local function ack_items()
  local items = {}
  for i = 2, #ARGV, ACK_WIDTH do
    items[#items + 1] = {
      id = ARGV[i], token = ARGV[i + 1], worker = ARGV[i + 2], summary = ARGV[i + 3],
      exit = ARGV[i + 4] == '1' and ARGV[i + 5] or nil, delay_ms = tonumber(ARGV[i + 6]),
    }
  end
  return items
end

-- Runs `land(job, item)` for every item whose token holds its job, and replies one word an item:
-- what landed, or what landed before under the same token, or `lost`, or `not_found`.
local function ack_all(land)
  local items, list = ack_items(), {}
  for i, item in ipairs(items) do list[i] = load_job(item.id) end
  local _, refusal = open_store(queues_of(list))
  if refusal then return refusal end
  local reply = { 'ok' }
  for i, item in ipairs(items) do
    local job, word = held(item.id, item.token)
    reply[i + 1] = job and land(job, item) or word
  end
  apply_moves()
  return reply
end

-- The holder named at the claim stands in for an ack that names no worker.
local function worker_of(job, item)
  return item.worker ~= '' and item.worker or job.worker
end

local function counted(job)
  return { 'attempts_made', text(count_of(job, 'attempts_made') + 1) }
end

-- The fields of a run that ended by itself, and its ledger entry.
local function ended_run(job, item, outcome)
  local set = counted(job)
  if item.summary ~= '' then
    set[#set + 1] = 'error'
    set[#set + 1] = item.summary
  end
  append_run(job, set, outcome, job.processed_at, worker_of(job, item), item.exit)
  return set
end

-- A run that was interrupted for a cancel: it counts as an attempt and has no exit.
local function ack_cancel(job, item)
  local set, worker = counted(job), worker_of(job, item)
  return land_cancelled(job, set, let_go(job, set, 'cancelled'), worker)
end
