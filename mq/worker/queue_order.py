"""In which order the queues of a worker are asked in one claim."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping


class QueueOrder:
    """Gives the queues of each claim: strictly as named, or drawn by weight.

    A drawn order is a weighted random permutation: each queue gets the key u^(1/weight) with u
    uniform in (0, 1), largest first (Efraimidis and Spirakis, 2006). A queue of weight 3 comes
    first three times as often as one of weight 1, and none is ever starved.

    Args:
        weights: queues and their weights, in the order named.
        strict: keep that order and ignore the weights.
        draw: gives a uniform number below 1.
    """

    def __init__(
        self,
        weights: Mapping[str, int],
        *,
        strict: bool = False,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self.names = tuple(weights)
        self._weights = weights
        self._fixed = strict or len(weights) == 1
        self._draw = draw

    def next(self) -> tuple[str, ...]:
        """Return the queues for one claim."""
        if self._fixed:
            return self.names
        keys = {name: self._draw() ** (1 / weight) for name, weight in self._weights.items()}
        return tuple(sorted(self.names, key=keys.__getitem__, reverse=True))
