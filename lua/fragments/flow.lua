-- The manifest of a flow parent: rows for its children, and which of them are open. `flow` on the
-- record is the marker that the fan-out has landed: from then on a run of the parent collects.
-- include: clock
-- include: move

-- Settles a parent's open rows as cancelled in one step, however many there are: the set of pending rows
-- becomes the set of those whose cancel is owed. The sweeper delivers them. The set of unstarted rows stays:
-- somebody may be about to enqueue those children, and a cancel would come before them.
local function abandon_children(id)
  redis.call('ZREM', FLOWS_KEY, id)
  if redis.call('EXISTS', pending_key(id)) == 0 then return end
  write_later('RENAME', pending_key(id), owed_key(id))
  write_later('ZADD', OWING_KEY, NOW_TEXT, id)
end

local function owes_cancels(job)
  return job.flow and redis.call('EXISTS', owed_key(job.id)) == 1
end

local function erase_flow(id)
  plan(leaving, FLOWS_KEY, id)
  plan(leaving, OWING_KEY, id)
  write_later('UNLINK', flow_key(id), children_key(id), rows_key(id), pending_key(id),
    unstarted_key(id), owed_key(id), outcomes_key(id), results_key(id))
end
