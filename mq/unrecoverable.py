"""Marks an error so that the rest of the budget is skipped."""

from __future__ import annotations

TYPE_CHECKING = False  # `typing` would be loaded by `import mq`, which loads nothing else

if TYPE_CHECKING:
    from typing import TypeVar

    E = TypeVar("E", bound=BaseException)

MARK = "__mq_unrecoverable__"


def unrecoverable(error: E) -> E:
    """Return the same error, marked: raising it ends the job whatever budget is left.

    `raise mq.unrecoverable(InvoiceError("voided"))` fails the job with the declared error; an
    undeclared error so marked is a defect that skips the budget.
    """
    if not isinstance(error, BaseException):
        raise TypeError(f"unrecoverable takes an exception, got {type(error).__name__}")
    # Every exception has a __dict__, whatever its class declares; writing there instead of
    # setting an attribute marks a frozen one too.
    vars(error)[MARK] = True
    return error


def is_unrecoverable(error: BaseException) -> bool:
    """Whether this object was marked."""
    return MARK in vars(error)
