"""A flow for worker processes; one of them dies where a variable of its environment says."""

from __future__ import annotations

import os
import signal
from typing import Any

import mq
from mq.worker.flow_starter import FlowStarter
from mq.worker.relay import Relay


def define(app: mq.App) -> mq.Flow[int, int]:
    """Define a flow over the squares below a number."""
    total = app.define("total", payload=int, result=int)

    @app.job("square")
    def square(number: int) -> int:
        if os.environ.get("DIE_AT") == "child":
            _die()
        return number * number

    flow = app.flow("squares", parent=total, children=[square])

    @flow.fan_out
    def _(number: int) -> Any:
        return [square.child(key=str(n), payload=n) for n in range(number)]

    @flow.collect
    def _(number: int, results: mq.FlowResults) -> int:
        return sum(one.value for one in results.all() if one.outcome == "completed")

    return flow


def _die(*_: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


app = mq.App()
define(app)
if os.environ.get("DIE_AT") == "start":
    setattr(FlowStarter, "start_children", _die)  # noqa: B010 a method, which mypy lets nobody assign
elif os.environ.get("DIE_AT") == "carry":
    setattr(Relay, "_carry", _die)  # noqa: B010
