"""The options of a definition: what travels on the record, and how a worker treats its runs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, Literal, get_args

import attrs

from mq.durations import Duration, to_ms
from mq.policies import Backoff, KeepPolicy, encode_keep
from mq.signatures import check_callback
from mq.validation import check_attempts, check_name, check_priority

if TYPE_CHECKING:
    from mq.context import Context

Executor = Literal["thread", "process"]
OnUnresponsive = Literal["replace", "wait"]
OnFailure = Callable[[BaseException, "Context"], None]


@attrs.frozen(kw_only=True)
class Policies:
    """What a definition sets for its jobs and an enqueue may override; None where unsaid."""

    queue: str | None = None
    priority: int | None = None
    attempts: int | None = None
    backoff: Backoff | None = None
    timeout_ms: int | None = None
    delay_ms: int | None = None
    keep: str | None = None

    @classmethod
    def of(
        cls,
        *,
        queue: str | None = None,
        priority: int | None = None,
        attempts: int | None = None,
        backoff: Backoff | None = None,
        timeout: Duration | None = None,
        delay: Duration | None = None,
        keep: KeepPolicy | None = None,
    ) -> Policies:
        """Check options as written; ValueError or TypeError names the one that is wrong."""
        if backoff is not None and not isinstance(backoff, Backoff):
            raise TypeError(
                f"backoff must be mq.fixed(...) or mq.exponential(...), got {backoff!r}"
            )
        timeout_ms = None if timeout is None else to_ms(timeout, "timeout")
        if timeout_ms == 0:
            raise ValueError("timeout must be longer than 0; leave it out for no limit")
        return cls(
            queue=None if queue is None else check_name(queue, "queue"),
            priority=None if priority is None else check_priority(priority),
            attempts=None if attempts is None else check_attempts(attempts),
            backoff=backoff,
            timeout_ms=timeout_ms,
            delay_ms=None if delay is None else to_ms(delay, "delay"),
            keep=None if keep is None else encode_keep(keep),
        )

    def over(self, base: Policies) -> Policies:
        """Return these, with what was left open taken from `base`."""
        mine = attrs.asdict(self, recurse=False)
        return attrs.evolve(
            base, **{name: value for name, value in mine.items() if value is not None}
        )


_OPTIONS = (
    "queue",
    "priority",
    "attempts",
    "backoff",
    "timeout",
    "keep",
    "metadata",
    "delay",
    "at",
)
"""What a job may be given beside its payload, wherever it is made."""


def check_options(given: Mapping[str, Any], verb: str, *, refused: Collection[str] = ()) -> None:
    """Raise TypeError for an option that a verb does not know.

    Args:
        given: options by name.
        verb: how the message names it.
        refused: options that the verb has said no to, unless they are None.
    """
    for name in given:
        if name not in _OPTIONS and name not in refused:
            known = ", ".join(option for option in _OPTIONS if option not in refused)
            raise TypeError(f"{verb}() has no option {name!r}: use {known}")


@attrs.frozen(kw_only=True)
class Conduct:
    """How a worker treats the runs of a definition; nothing of it travels on the record.

    Args:
        retryable: asked for declared errors alone; False skips the rest of the budget.
        executor: whether handlers run in a thread of the worker or in a child process of it; None
            for the worker's own choice.
        interrupt: whether an exception may be raised in a handler that should end.
        interrupt_grace_ms: how long a handler that was told to end may take.
        on_unresponsive: what happens to one that takes longer: its slot is replaced and the run
            recorded, or slot and lock wait for it, so that runs never overlap.
        on_failure: called after a failed run was acked, with the error and the run's context.
    """

    retryable: Callable[[Any], bool] | None = None
    executor: Executor | None = None
    interrupt: bool = True
    interrupt_grace_ms: int = 5_000
    on_unresponsive: OnUnresponsive = "replace"
    on_failure: OnFailure | None = None

    @classmethod
    def of(
        cls,
        *,
        retryable: Callable[[Any], bool] | None = None,
        executor: Executor | None = None,
        interrupt: bool = True,
        interrupt_grace: Duration = "5s",
        on_unresponsive: OnUnresponsive = "replace",
        on_failure: OnFailure | None = None,
    ) -> Conduct:
        """Check options as written; ValueError or TypeError names the one that is wrong."""
        if executor is not None and executor not in get_args(Executor):
            raise ValueError(f"executor must be 'thread' or 'process', got {executor!r}")
        if on_unresponsive not in get_args(OnUnresponsive):
            raise ValueError(
                f"on_unresponsive must be 'replace' or 'wait', got {on_unresponsive!r}"
            )
        if retryable is not None:
            check_callback(retryable, "retryable", "error")
        if on_failure is not None:
            check_callback(on_failure, "on_failure", "error", "ctx")
        return cls(
            retryable=retryable,
            executor=executor,
            interrupt=bool(interrupt),
            interrupt_grace_ms=to_ms(interrupt_grace, "interrupt_grace"),
            on_unresponsive=on_unresponsive,
            on_failure=on_failure,
        )
