"""Which function a run of a flow parent calls, and with what."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from mq.worker.invocation import Phase

if TYPE_CHECKING:
    from mq.flows import Flow
    from mq.records import JobRecord
    from mq.store import Store


def _drained(function: Callable[..., Any] | None) -> Callable[..., Any]:
    """Go through what a fan-out returned where it can be interrupted and may raise."""

    def call(*arguments: Any) -> Any:
        assert function is not None
        returned = function(*arguments)
        lazy = isinstance(returned, Iterable) and not isinstance(returned, str | bytes)
        return list(returned) if lazy else returned

    return call


def phase_of(flow: Flow[Any, Any], store: Store, record: JobRecord) -> Phase:
    """Return the phase a parent is in: the marker on its record says whether it has fanned out."""
    if record.flow is None:
        return Phase(_drained(flow.fan_out_function), flow.fan_out_takes_context, fans_out=True)
    results = flow.results_of(store, record.id)
    return Phase(flow.collect_function, flow.collect_takes_context, (results,))
