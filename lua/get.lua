-- Script:  get
-- Version: 1
-- Args:    now with_bodies id*
-- Moves:   - (reads only)
-- Returns: ok, then for each id: a record with its ledger, or an empty list
-- Events:  -
--
-- Atomic so that a record, its ledger and its exits are of one instant. The ledger is flat: run, entry,
-- worker or '', has_exit, exit.
-- include: record
-- include: meta
local _, refusal = open_store({})
if refusal then return refusal end
local with_bodies = ARGV[2] == '1'

local function ledger_of(job)
  local runs, fields = count_of(job, 'runs'), {}
  for run = 1, runs do
    for _, kind in ipairs({ 'run:', 'by:', 'exit:' }) do
      fields[#fields + 1] = kind .. string.format('%.0f', run)
    end
  end
  local long = {}
  if with_bodies and runs > 0 then
    local stored = redis.call('HGETALL', exits_key(job.id))
    for i = 1, #stored, 2 do long[stored[i]] = stored[i + 1] end
  end
  local ledger = {}
  for first = 1, #fields, 999 do
    local chunk = { unpack(fields, first, math.min(first + 998, #fields)) }
    local values = redis.call('HMGET', job_key(job.id), unpack(chunk))
    for i = 1, #values, 3 do
      local run = string.sub(chunk[i], 5)
      local exit = with_bodies and (values[i + 2] or long[run])
      for _, value in ipairs({ run, values[i] or '', values[i + 1] or '', exit and '1' or '0', exit or '' }) do
        ledger[#ledger + 1] = value
      end
    end
  end
  return ledger
end

local reply = { 'ok' }
for i = 3, #ARGV do
  local job = load_job(ARGV[i])
  if job then
    local record = record_of(job, with_bodies and redis.call('GET', payload_key(job.id)))
    record[5] = ledger_of(job)
    reply[#reply + 1] = record
  else
    reply[#reply + 1] = {}
  end
end
return reply
