-- Every key of a store, derived from KEYS[1] (`{prefix}:meta`). Mirrors mq/keys.py, name by name.
local ROOT = string.sub(KEYS[1], 1, -5)
local META_KEY = KEYS[1]
local SEQ_KEY = ROOT .. 'seq'
local ACTIVE_KEY = ROOT .. 'active'
local function job_key(id) return ROOT .. 'job:' .. id end
local function payload_key(id) return ROOT .. 'payload:' .. id end
local function extra_key(id) return ROOT .. 'extra:' .. id end
local function exits_key(id) return ROOT .. 'exits:' .. id end
local function waiting_key(queue, name) return ROOT .. 'waiting:' .. queue .. ':' .. name end
local function delayed_key(queue) return ROOT .. 'delayed:' .. queue end
local function index_key(state, queue, name)
  return ROOT .. 'index:' .. state .. ':' .. queue .. ':' .. name
end
local function finished_key(state, queue, name)
  return ROOT .. 'finished:' .. state .. ':' .. queue .. ':' .. name
end
local EXPIRES_KEY = ROOT .. 'expires'
local function metadata_key(key, value) return ROOT .. 'metadata:' .. key .. ':' .. value end
local function backfill_key(key) return ROOT .. 'backfill:' .. key end
local function dedup_key(name, key) return ROOT .. 'dedup:' .. name .. ':' .. key end
local FLOWS_KEY = ROOT .. 'flows'
local OWING_KEY = ROOT .. 'owing'
local OUTBOX_KEY = ROOT .. 'outbox'
local function report_key(entry) return ROOT .. 'report:' .. entry end
local function flow_key(id) return ROOT .. 'flow:' .. id end
local function children_key(id) return ROOT .. 'children:' .. id end
local function rows_key(id) return ROOT .. 'rows:' .. id end
local function pending_key(id) return ROOT .. 'pending:' .. id end
local function unstarted_key(id) return ROOT .. 'unstarted:' .. id end
local function owed_key(id) return ROOT .. 'owed:' .. id end
local function outcomes_key(id) return ROOT .. 'outcomes:' .. id end
local function results_key(id) return ROOT .. 'results:' .. id end
local SCHEDULES_KEY = ROOT .. 'schedules'
local PAUSED_SCHEDULES_KEY = ROOT .. 'paused-schedules'
local function schedule_key(name, key) return ROOT .. 'schedule:' .. name .. ':' .. key end
local WINDOWS_KEY = ROOT .. 'windows'
local function claims_key(worker) return ROOT .. 'claims:' .. worker end
local function answered_key(nonce) return ROOT .. 'answered:' .. nonce end
local function control_key(worker) return ROOT .. 'control:' .. worker end
local function wake_key(queue, name) return ROOT .. 'wake:' .. queue .. ':' .. name end
local DONE_CHANNEL = ROOT .. 'done'
