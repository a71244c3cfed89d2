-- Script:  get
-- Version: 2
-- Args:    now kind max_bytes all_must_fit id*
-- Moves:   - (reads only)
-- Returns: ok, then for each id: a record with its ledger, or an empty list; fewer than asked for past max_bytes
-- Events:  -
--
-- Atomic so that a record, its ledger and its exits are of one instant. `kind` is what is read: `bare` the
-- record alone, `body` its payload and the last ledger entry too, `whole` every entry. The ledger is flat:
-- run, entry, worker or '', has_exit, exit.
-- include: record
-- include: text
-- include: meta
local _, refusal = open_store({})
if refusal then return refusal end
local kind, max_bytes, all_must_fit = ARGV[2], tonumber(ARGV[3]), ARGV[4] == '1'

local function entries_of(job, first, last)
  local ledger, long = {}, {}
  local stored = kind == 'whole' and redis.call('HGETALL', exits_key(job.id)) or {}
  for i = 1, #stored, 2 do long[stored[i]] = stored[i + 1] end
  for run = first, last do
    run = text(run)
    local values = redis.call('HMGET', job_key(job.id), 'run:' .. run, 'by:' .. run, 'exit:' .. run)
    local exit = values[3] or long[run]
    if kind == 'body' then exit = exit or redis.call('HGET', exits_key(job.id), run) end
    for _, value in ipairs({ run, values[1] or '', values[2] or '', exit and '1' or '0', exit or '' }) do
      ledger[#ledger + 1] = value
    end
  end
  return ledger
end

local function bytes_of(record)
  local bytes = #(record[3] or '')
  for i = 5, #record[5], 5 do bytes = bytes + #record[5][i] end
  return bytes
end

local reply, bytes = { 'ok' }, 0
for i = 5, #ARGV do
  local job, record = load_job(ARGV[i]), {}
  if job and kind == 'bare' then
    record = record_of(job, false)
    record[5] = {}
  elseif job then
    local runs = count_of(job, 'runs')
    record = record_of(job, redis.call('GET', payload_key(job.id)))
    record[5] = entries_of(job, kind == 'whole' and 1 or math.max(runs, 1), runs)
    bytes = bytes + bytes_of(record)
    if max_bytes and bytes > max_bytes and (all_must_fit or #reply > 1) then break end
  end
  reply[#reply + 1] = record
end
return reply
