-- Script:  ack_fanned_out
-- Version: 2
-- Args:    now (id token worker summary has_exit exit delay_ms)*
-- Moves:   active -> waiting-children | waiting | cancelled
-- Returns: ok, then a word an item: fanned_out | cancelled | what landed before | lost | not_found
-- Events:  wake, done (awaited jobs that were cancelled)
--
-- Atomic because the marker that a fan-out has happened, the ledger entry and the parking are one step: a
-- parent that runs again collects, and never fans out twice. A second fan-out that is acked keeps the rows of
-- the first; how many of them are open decides where the parent goes. A cancel that is pending lands, and
-- the rows are owed their cancels.
-- include: ack
-- include: flow

return ack_all(function(job, item)
  if not job.flow and redis.call('HGET', flow_key(job.id), 'token') ~= job.token then
    -- Rows that another run began to write and did not ack are no part of this fan-out.
    redis.call('UNLINK', flow_key(job.id), children_key(job.id), rows_key(job.id), pending_key(job.id),
      unstarted_key(job.id))
  end
  local first = not job.flow
  job.flow = 'collect'
  local set = { 'flow', 'collect' }
  if job.cancel_requested then
    abandon_children(job.id)
    -- Nobody was ever told of these children, so none of them is on its way.
    if first then write_later('UNLINK', unstarted_key(job.id)) end
    local worker = worker_of(job, item)
    for _, value in ipairs(counted(job)) do set[#set + 1] = value end
    return land_cancelled(job, set, let_go(job, set, 'cancelled'), worker)
  end
  append_run(job, set, 'fanned-out', job.processed_at, worker_of(job, item), nil)
  local unset = let_go(job, set, 'fanned_out')
  if redis.call('ZCARD', pending_key(job.id)) > 0 then
    if first then write_later('ZADD', FLOWS_KEY, NOW_TEXT, job.id) end
    move(job, 'waiting-children', set, unset)
  else
    job.seq = next_seq()
    set[#set + 1] = 'seq'
    set[#set + 1] = job.seq
    move(job, 'waiting', set, unset)
  end
  return 'fanned_out'
end)
