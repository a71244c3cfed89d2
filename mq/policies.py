"""Policies of a job as values: backoff, deduplication, retention."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Literal

import attrs

from mq.durations import MAX_DELAY_MS, Duration, to_ms
from mq.states import FINISHED, JobState
from mq.validation import check_count, check_text

# Longer values would take the record out of Redis's compact encoding.
MAX_TEXT_BYTES = 64
MAX_FACTOR = 1_000.0
MAX_KEY_BYTES = 512
MAX_KEPT = 10**9
# Enough for a policy, and the text of the record stays short.
_DECIMALS = 4

_TEXT = re.compile(
    r"(?:(?P<immediate>immediate)|fixed (?P<fixed>\d{1,13})"
    r"|exponential (?P<exponential>\d{1,13}) factor=(?P<factor>\d{1,4}(?:\.\d{1,4})?)"
    r"(?: max=(?P<max>\d{1,13}))?(?: jitter=(?P<jitter>[01](?:\.\d{1,4})?))?)",
    re.ASCII,
)


@attrs.frozen
class Backoff:
    """The delay after the n-th failed run: `delay_ms * factor ** (n - 1)`, at most `max_ms`.

    `jitter` is the share of the delay, 0 to 1, that chance may take away: it never lengthens one.
    """

    kind: Literal["fixed", "exponential"] = "fixed"
    delay_ms: int = 0
    factor: float = 1.0
    max_ms: int | None = None
    jitter: float = 0.0

    def delay_ms_for(self, failed_runs: int, random: Callable[[], float]) -> int:
        """Return the wait in ms after `failed_runs` failures, always 0 to 100 years.

        Args:
            failed_runs: how many runs have failed, the last one included; less than 1 counts as 1.
            random: gives a number from 0 to 1; called only when there is jitter.
        """
        ceiling = MAX_DELAY_MS if self.max_ms is None else min(self.max_ms, MAX_DELAY_MS)
        # The smallest factor above 1 reaches the ceiling long before a million steps.
        steps = min(max(failed_runs, 1) - 1, 1_000_000)
        delay = min(self._grown(steps), ceiling)
        if self.jitter:
            delay -= round(delay * self.jitter * min(max(random(), 0.0), 1.0))
        return max(delay, 0)

    def _grown(self, steps: int) -> int:
        if self.delay_ms == 0 or steps == 0 or self.factor == 1:
            return self.delay_ms
        # Compared as logarithms: the power itself overflows a float after a few hundred steps.
        if math.log(self.delay_ms) + steps * math.log(self.factor) >= math.log(MAX_DELAY_MS):
            return MAX_DELAY_MS
        return round(self.delay_ms * self.factor**steps)

    def encode(self) -> str:
        """Return the policy as text of at most 64 bytes, readable in redis-cli."""
        if self.kind == "fixed":
            return f"fixed {self.delay_ms}" if self.delay_ms else "immediate"
        text = f"exponential {self.delay_ms} factor={_decimal(self.factor)}"
        if self.max_ms is not None:
            text += f" max={self.max_ms}"
        if self.jitter:
            text += f" jitter={_decimal(self.jitter)}"
        return text

    @classmethod
    def decode(cls, text: str) -> Backoff:
        """Return the policy that `encode` wrote, or raise ValueError for any other text."""
        match = _TEXT.fullmatch(text)
        if match is None:
            raise ValueError(f"not a backoff: {ascii(text)[:80]}")
        if match["immediate"]:
            return IMMEDIATE
        if match["fixed"]:
            return cls("fixed", int(match["fixed"]))
        factor, jitter = float(match["factor"]), float(match["jitter"] or 0)
        if not (1 <= factor <= MAX_FACTOR and jitter <= 1):
            raise ValueError(f"not a backoff, factor or jitter out of range: {text!a}")
        ceiling = None if match["max"] is None else int(match["max"])
        return cls("exponential", int(match["exponential"]), factor, ceiling, jitter)


IMMEDIATE = Backoff()


def fixed(delay: Duration) -> Backoff:
    """Wait the same after every failed run."""
    return Backoff("fixed", to_ms(delay, "fixed backoff delay", clamp=True))


def exponential(
    delay: Duration,
    factor: float = 2,
    max: Duration | None = None,  # noqa: A002 the contract's word
    jitter: float = 0,
) -> Backoff:
    """Wait `delay * factor ** (n - 1)` after the n-th failed run.

    Args:
        delay: the wait after the first failed run.
        factor: 1 to 1000; kept to four decimals, as is `jitter`.
        max: no wait is longer than this.
        jitter: the share of each wait, 0 to 1, that chance may take away.

    Raises:
        ValueError, TypeError: for values out of range, or too many digits to fit the record.
    """
    backoff = Backoff(
        "exponential",
        to_ms(delay, "exponential backoff delay", clamp=True),
        _share(factor, "factor", 1.0, MAX_FACTOR),
        None if max is None else to_ms(max, "exponential backoff max", clamp=True),
        _share(jitter, "jitter", 0.0, 1.0),
    )
    size = len(backoff.encode())
    if size > MAX_TEXT_BYTES:
        raise ValueError(
            f"exponential backoff takes {size} bytes on the record, {MAX_TEXT_BYTES} are allowed; "
            "use fewer decimals in factor and jitter, or a shorter max"
        )
    return backoff


def _share(value: float, what: str, low: float, high: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"exponential backoff {what} must be a number, got {type(value).__name__}")
    # NaN fails this comparison too.
    if not low <= value <= high:
        raise ValueError(f"exponential backoff {what} must be {low:g} to {high:g}")
    return round(float(value), _DECIMALS)


def _decimal(value: float) -> str:
    return f"{value:.{_DECIMALS}f}".rstrip("0").rstrip(".")


def check_key(key: object) -> str:
    """Return a dedup key: 1 to 512 bytes of text without control characters."""
    return check_text(key, "dedup key", max_bytes=MAX_KEY_BYTES)


def _window(ttl: Duration | None) -> int | None:
    return None if ttl is None else to_ms(ttl, "dedupe ttl")


@attrs.frozen
class Dedupe:
    """A dedup key: enqueues under one key and job name come to one job.

    The mode is chosen by the enqueue that takes the key:

    - `Dedupe(key)`: while the keyed job is pending (waiting, delayed, active, waiting-children).
    - `Dedupe(key, ttl=...)`: throttle, one job in each window, whether or not it has finished.
    - `Dedupe(key, ttl=..., extend=True)`: debounce, each enqueue that is dropped pushes the window
      out.
    - `Dedupe(key, replace=True)`: the latest wins while the keyed job is still delayed; otherwise
      as the first. With a `ttl`, within the window, which a landed replace begins anew.

    Args:
        key: 1 to 512 bytes of text without control characters; scoped by the job's name.
        ttl: length of the window; it is open while now < end.
        extend: whether a dropped enqueue pushes the window out; needs a `ttl`.
        replace: whether an enqueue replaces what a delayed job carries.

    Raises:
        ValueError, TypeError: the key or a combination cannot work.
    """

    key: str = attrs.field(converter=check_key)
    ttl_ms: int | None = attrs.field(default=None, alias="ttl", converter=_window, kw_only=True)
    extend: bool = attrs.field(default=False, converter=bool, kw_only=True)
    replace: bool = attrs.field(default=False, converter=bool, kw_only=True)

    def __attrs_post_init__(self) -> None:
        """Refuse a mode that says nothing."""
        if self.extend and self.ttl_ms is None:
            raise ValueError("extend pushes a window out: give ttl= as well")


def check_dedupe(given: object) -> Dedupe | None:
    """Return what `dedupe` means: a `Dedupe`, text for a plain key, None for no deduplication."""
    if given is None or isinstance(given, Dedupe):
        return given
    if isinstance(given, str):
        return Dedupe(given)
    raise TypeError(f"dedupe must be mq.Dedupe(...) or a key as text, got {type(given).__name__}")


def _age(age: Duration | None) -> int | None:
    return None if age is None else to_ms(age, "keep age")


def _count(count: int | None) -> int | None:
    return None if count is None else check_count(count, "keep count", 0, MAX_KEPT)


@attrs.frozen
class Keep:
    """How long finished jobs of one queue, name and state are kept; without one, for ever.

    It is applied when a job that carries it finishes, to that job and its peers. A job goes when
    either rule says so: it is older than `age`, or there are `count` newer ones. 0 keeps none.

    Args:
        count: how many are kept, by the instant of their end, then by place in line.
        age: how long after its end a job is kept; exactly this old, it is gone.

    Raises:
        ValueError, TypeError: neither is given, or a value cannot work.
    """

    count: int | None = attrs.field(default=None, converter=_count, kw_only=True)
    age_ms: int | None = attrs.field(default=None, alias="age", converter=_age, kw_only=True)

    def __attrs_post_init__(self) -> None:
        """Refuse a policy that says nothing."""
        if self.count is None and self.age_ms is None:
            raise ValueError("keep needs count= or age=; leave it out to keep jobs for ever")


KeepPolicy = Keep | Mapping[str, Keep]
"""One policy for every finished state, or one for each of some."""


def encode_keep(keep: object) -> str:
    """Return a retention policy as text for the record, readable in redis-cli.

    `<state>=<count>/<age in ms>` for each state that has a policy, `*` where a rule is not given.
    One policy for every state is `*=<count>/<age in ms>`, which always fits the record.
    """
    if keep is None:
        return ""
    by_state = split_by_state(keep, "keep")
    rules = {}
    for state, policy in by_state.items():
        if not isinstance(policy, Keep):
            raise TypeError(f"keep must be mq.Keep(...) or a dict of them, got {policy!r}")
        count = "*" if policy.count is None else policy.count
        age = "*" if policy.age_ms is None else policy.age_ms
        rules[state] = f"{count}/{age}"
    if len(rules) == len(FINISHED) and len(set(rules.values())) == 1:
        return f"*={next(iter(rules.values()))}"
    return " ".join(f"{state}={rule}" for state, rule in rules.items())


def check_history_ttl(given: Duration | Mapping[str, Duration] | None) -> dict[str, int]:
    """Return the longest time finished jobs of each state are kept, ms; empty for no ceiling.

    Raises:
        ValueError, TypeError: it is empty, or a state or a duration cannot work.
    """
    if given is None:
        return {}
    by_state = split_by_state(given, "history_ttl")
    return {state: to_ms(value, f"history_ttl {state}") for state, value in by_state.items()}


def split_by_state(given: Any, what: str) -> dict[str, Any]:
    """Return one value for each finished state; a mapping names the states it is for."""
    names = [state.value for state in JobState if state in FINISHED]
    if not isinstance(given, Mapping):
        return dict.fromkeys(names, given)
    unknown = [key for key in given if key not in names]
    if unknown or not given:
        problem = f"names {unknown[0]!r}" if unknown else "is empty"
        raise ValueError(f"{what} {problem}: use {', '.join(names)}")
    return {name: given[name] for name in names if name in given}
