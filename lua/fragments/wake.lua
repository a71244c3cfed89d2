-- Wake markers: one sorted set of at most one member per (queue, name), which an idle worker blocks
-- on. A marker is a hint, never the truth: it says "look", and a claim decides. It stays until it is
-- taken, and one enqueue wakes one worker that can run the job.
-- include: job
-- include: meta
local function wake(queue, name)
  redis.call('ZADD', wake_key(queue, name), '0', '1')
end

-- Sets the markers that a batch of moves owes: for every (queue, name) that got a runnable job, and
-- for a job that became the earliest delayed one of its queue, whose sleeper must wake sooner. One behind
-- a job of another name wakes as well: who can run that one need not be there, or be able to run this.
-- Nobody is woken for a paused queue: nothing may be claimed there, and resume sets the markers.
local function wake_for(runnable, delayed)
  local marked = {}
  local function wake_once(job)
    local key = wake_key(job.queue, job.name)
    if not marked[key] and not PAUSED[job.queue] then
      marked[key] = true
      wake(job.queue, job.name)
    end
  end
  for _, job in ipairs(runnable) do wake_once(job) end
  for _, job in ipairs(delayed) do
    local head = redis.call('ZRANGE', delayed_key(job.queue), '0', '0')[1]
    local first = head ~= job.id and load_job(head)
    if not first or first.name ~= job.name then wake_once(job) end
  end
end
