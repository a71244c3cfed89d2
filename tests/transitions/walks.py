"""How a random walk is run: the same examples in every run, on the server that is given."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test
from servers import Server


def walk(
    machine: type[RuleBasedStateMachine], server: Server, *, examples: int, steps: int
) -> None:
    """Let a machine with a class attribute `server` go its ways."""
    on_server = type(machine.__name__, (machine,), {"server": server})
    run_state_machine_as_test(
        on_server,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            derandomize=True,
            database=None,
        ),
    )
