"""Every Redis key of a store, one function each; `lua/fragments/keys.lua` is its mirror.

All keys of a store carry one hash tag, the prefix in braces, so that a cluster keeps them in one
slot and a script may touch any of them. Text chosen by users (ids, dedup keys, metadata values)
comes last in a key, where a colon in it cannot be mistaken for a separator: queue, job and metadata
names never contain one.
"""

from __future__ import annotations

import re

import attrs

from mq.states import JobState

SCHEMA = 1
"""Version of the keyspace. It rises only when stored data changes shape."""

_PREFIX = re.compile(r"[A-Za-z0-9._-]{1,64}")


def check_prefix(prefix: object) -> str:
    """Return `prefix` when it can be a hash tag, else raise ValueError saying what may be used."""
    if not isinstance(prefix, str) or not _PREFIX.fullmatch(prefix):
        raise ValueError(
            f"prefix {repr(prefix)[:80]} is not usable: give 1 to 64 of A-Z a-z 0-9 . _ - "
            "(mq adds the braces of the hash tag itself)"
        )
    return prefix


@attrs.frozen
class Keys:
    """The key names of one store.

    Args:
        prefix: the store's prefix without braces, `mq` by default.
    """

    prefix: str = attrs.field(default="mq", validator=lambda _, __, value: check_prefix(value))

    @property
    def root(self) -> str:
        """What every key of the store begins with."""
        return "{" + self.prefix + "}:"

    def meta(self) -> str:
        """Hash: schema, seen pairs, paused queues, metadata keys that are indexed and ready."""
        return self.root + "meta"

    def seq(self) -> str:
        """Integer: the enqueue order, raised by one for every new place in line."""
        return self.root + "seq"

    def job(self, job_id: str) -> str:
        """Hash: the record, plain fields a person can read."""
        return self.root + "job:" + job_id

    def payload(self, job_id: str) -> str:
        """String: the payload's bytes; its existence is what makes an id taken."""
        return self.root + "payload:" + job_id

    def extra(self, job_id: str) -> str:
        """Hash: metadata, trace, parent, progress, a long dedup key: what few jobs have."""
        return self.root + "extra:" + job_id

    def exits(self, job_id: str) -> str:
        """Hash: attempt number -> encoded exit, for exits too long to stand on the record."""
        return self.root + "exits:" + job_id

    def waiting(self, queue: str, name: str) -> str:
        """Sorted set by place in line: `seq - priority * 2^42`, lowest first."""
        return f"{self.root}waiting:{queue}:{name}"

    def delayed(self, queue: str) -> str:
        """Sorted set by `run_at`, all names of a queue together."""
        return f"{self.root}delayed:{queue}"

    def active(self) -> str:
        """Sorted set by lock expiry: every job that some worker holds."""
        return self.root + "active"

    def index(self, state: JobState, queue: str, name: str) -> str:
        """Sorted set by `enqueued_at`: the jobs of one state, queue and name."""
        return f"{self.root}index:{state.value}:{queue}:{name}"

    def finished(self, state: JobState, queue: str, name: str) -> str:
        """Sorted set by `finished_at`: the finished jobs of one state, queue and name."""
        return f"{self.root}finished:{state.value}:{queue}:{name}"

    def expires(self) -> str:
        """Sorted set by the instant from which a finished job is to be gone, by its own policy."""
        return self.root + "expires"

    def metadata(self, key: str, value: str) -> str:
        """Sorted set by `enqueued_at`: the jobs with this value of a declared metadata key."""
        return f"{self.root}metadata:{key}:{value}"

    def backfill(self, key: str) -> str:
        """Hash: the pairs whose jobs a new metadata index still lacks, and how far each is."""
        return self.root + "backfill:" + key

    def dedup(self, name: str, key: str) -> str:
        """Hash: the job a dedup key names, the end of its window, and its mode."""
        return f"{self.root}dedup:{name}:{key}"

    def flows(self) -> str:
        """Sorted set by the oldest open row: flow parents with children that are not reported."""
        return self.root + "flows"

    def owing(self) -> str:
        """Sorted set by when to look: flow parents that owe cancels to children."""
        return self.root + "owing"

    def flow(self, job_id: str) -> str:
        """Hash: a parent's mode and how many of its children ended how."""
        return self.root + "flow:" + job_id

    def children(self, job_id: str) -> str:
        """Sorted set, every score 0: the keys of a parent's children, in byte order."""
        return self.root + "children:" + job_id

    def rows(self, job_id: str) -> str:
        """Hash: child key -> its store and whole request, encoded."""
        return self.root + "rows:" + job_id

    def pending(self, job_id: str) -> str:
        """Sorted set by when it was last handed out: children that are not reported."""
        return self.root + "pending:" + job_id

    def unstarted(self, job_id: str) -> str:
        """Sorted set, every score 0: children that nobody is known to have enqueued."""
        return self.root + "unstarted:" + job_id

    def owed(self, job_id: str) -> str:
        """Sorted set by when to look: children whose cancel is still to be delivered."""
        return self.root + "owed:" + job_id

    def outcomes(self, job_id: str) -> str:
        """Hash: child key -> completed, failed or cancelled."""
        return self.root + "outcomes:" + job_id

    def results(self, job_id: str) -> str:
        """Hash: child key -> its exit, when it has one."""
        return self.root + "results:" + job_id

    def outbox(self) -> str:
        """Sorted set by order of finishing: reports of children to their parents, to be sent."""
        return self.root + "outbox"

    def report(self, entry: str) -> str:
        """Hash: one report: the parent it goes to, the child, its outcome and exit."""
        return self.root + "report:" + entry

    def schedules(self) -> str:
        """Sorted set by the next occurrence: `<name>:<key>` of schedules that are not paused."""
        return self.root + "schedules"

    def paused_schedules(self) -> str:
        """Sorted set by the next occurrence: `<name>:<key>` of every paused schedule."""
        return self.root + "paused-schedules"

    def schedule(self, name: str, key: str) -> str:
        """Hash: one schedule: its cadence, next occurrence, and the job it makes."""
        return f"{self.root}schedule:{name}:{key}"

    def windows(self) -> str:
        """Sorted set by the end of the window: every dedup key that has one."""
        return self.root + "windows"

    def answered(self, nonce: str) -> str:
        """String with a TTL: what a call did that leaves nothing to recognise it by."""
        return self.root + "answered:" + nonce

    def claims(self, worker: str) -> str:
        """String with a TTL: nonce and ids of a worker's last claim, for a repeated call."""
        return self.root + "claims:" + worker

    def wake(self, queue: str, name: str) -> str:
        """Sorted set of at most one member: present when a worker should look for work."""
        return f"{self.root}wake:{queue}:{name}"

    def control(self, worker: str) -> str:
        """Sorted set with a TTL: `<token> <id>` of runs to cancel; an empty member only wakes."""
        return self.root + "control:" + worker

    def done(self) -> str:
        """Channel on which finishing scripts announce awaited jobs, by id."""
        return self.root + "done"
