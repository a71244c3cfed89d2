"""How the columns of a table share a terminal: which are left out, and how wide the others are."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

LEAST = 12  # columns of the terminal that a text which may be cut keeps
GAP = 2  # between two columns
EDGES = 2


def kept(
    widths: Mapping[str, int], cut: Collection[str], drop: Sequence[str], room: int
) -> list[str]:
    """Return the columns that there is room for; of those that may go, the first go first.

    Args:
        widths: what each column would like to have, by its heading.
        cut: columns that do with less.
        drop: columns that may be left out.
        room: how wide the terminal is.
    """
    left = list(widths)
    for heading in drop:
        if _needed({one: widths[one] for one in left}, cut) <= room:
            break
        if heading in left:
            left.remove(heading)
    return left


def shared(
    widths: Mapping[str, int], cut: Collection[str], whole: Collection[str], room: int
) -> dict[str, int]:
    """Return the width of each column: those that may be cut have what the others leave.

    One that is shown whole takes several lines when it is wider than all there is.
    """
    given = {heading: _least(heading, width, cut) for heading, width in widths.items()}
    spare = room - _needed(widths, cut)
    for heading, width in widths.items():
        if heading in cut and spare > 0:
            more = min(spare, width - given[heading])
            given[heading] += more
            spare -= more
        elif heading in whole and spare < 0:
            given[heading] = max(given[heading] + spare, 1)
    return given


def _needed(widths: Mapping[str, int], cut: Collection[str]) -> int:
    least = sum(_least(heading, width, cut) for heading, width in widths.items())
    return least + GAP * (len(widths) - 1) + EDGES


def _least(heading: str, width: int, cut: Collection[str]) -> int:
    return min(width, LEAST) if heading in cut else width
