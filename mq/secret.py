"""Secret: a value that nobody prints by accident."""

from __future__ import annotations

import copy
from typing import Generic, NoReturn, TypeVar

T = TypeVar("T")

MASK = "***"


class Secret(Generic[T]):
    """Wraps a value whose repr, text and format are `***`; `reveal` gives it back.

    Redaction protects logs and screens, not the database: the value is stored as it is. With
    `persist=False` mq refuses to store it at all.
    """

    __slots__ = ("_persist", "_value")

    def __init__(self, value: T, *, persist: bool = True) -> None:
        self._value = value
        self._persist = persist

    def reveal(self) -> T:
        """Return the wrapped value."""
        return self._value

    @property
    def persist(self) -> bool:
        """Whether the value may be stored."""
        return self._persist

    def __eq__(self, other: object) -> bool:
        """Compare by value with another secret; never equal to a bare value."""
        if not isinstance(other, Secret):
            return NotImplemented
        return bool(self._value == other._value)

    def __hash__(self) -> int:
        """Hash by value."""
        return hash((Secret, self._value))

    def __repr__(self) -> str:
        """Return the mask."""
        return MASK

    def __str__(self) -> str:
        """Return the mask."""
        return MASK

    def __format__(self, spec: str) -> str:
        """Return the mask, padded as asked."""
        return format(MASK, spec)

    def __copy__(self) -> Secret[T]:
        """Return itself: a secret does not change."""
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> Secret[T]:
        """Return a secret with a copy of the value."""
        return Secret(copy.deepcopy(self._value, memo), persist=self._persist)

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled: a pickle would show the value."""
        raise TypeError("a Secret cannot be pickled; pass what reveal() gives")
