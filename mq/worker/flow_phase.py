"""Which function a run of a flow parent calls, and with what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mq.worker.invocation import Phase

if TYPE_CHECKING:
    from mq.flows import Flow
    from mq.records import JobRecord
    from mq.store import Store


def phase_of(flow: Flow[Any, Any], store: Store, record: JobRecord) -> Phase:
    """Return the phase a parent is in: the marker on its record says whether it has fanned out."""
    if record.flow is None:
        return Phase(flow.fan_out_function, flow.fan_out_takes_context, fans_out=True)
    results = flow.results_of(store, record.id)
    return Phase(flow.collect_function, flow.collect_takes_context, (results,))
