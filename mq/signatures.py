"""What a handler's signature says: payload and result types, and whether it takes a context."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from typing import Any

import attrs

from mq.context import Context
from mq.errors import DefinitionError

_MISSING = inspect.Parameter.empty


@attrs.frozen
class Signature:
    """A handler's parameters and annotations.

    Args:
        job_name: whose handler it is, for messages.
        passes_context: whether the second parameter takes the run's Context.
    """

    job_name: str
    passes_context: bool
    _payload: Any
    _result: Any

    def payload(self) -> Any:
        """Return the payload type, or raise DefinitionError when it is not annotated."""
        if self._payload is _MISSING:
            raise DefinitionError(
                f"handler of job {self.job_name!r}: annotate its first parameter, or give payload="
            )
        return self._payload

    def check_payload(self, declared: Any) -> None:
        """Refuse a handler whose parameter is a class that payloads of the job never are."""
        taken = self._payload
        if taken is _MISSING or not (inspect.isclass(taken) and inspect.isclass(declared)):
            return
        if not issubclass(declared, taken) and not (taken is float and declared is int):
            raise DefinitionError(
                f"handler of job {self.job_name!r} takes {taken.__name__}, but the job's payload"
                f" is {declared.__name__}: make them one"
            )

    def result(self) -> Any:
        """Return the result type, or raise DefinitionError when it is not annotated."""
        if self._result is _MISSING:
            raise DefinitionError(
                f"handler of job {self.job_name!r}: annotate what it returns (-> None for nothing),"
                " or give result="
            )
        return self._result


def read_signature(function: Callable[..., Any], job_name: str) -> Signature:
    """Read a handler's signature; DefinitionError when a worker could not call it."""
    if not callable(function):
        raise DefinitionError(f"handler of job {job_name!r} is not callable: {function!r}")
    target = inspect.unwrap(function)
    if inspect.iscoroutinefunction(target) or inspect.isasyncgenfunction(target):
        raise DefinitionError(
            f"handler of job {job_name!r} is async: mq runs plain functions; call asyncio.run in it"
        )
    if inspect.isgeneratorfunction(target):
        raise DefinitionError(
            f"handler of job {job_name!r} is a generator: return its result instead"
        )
    parameters = [
        parameter
        for parameter in inspect.signature(function).parameters.values()
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    hints = _hints(function, job_name)
    if not parameters:
        raise DefinitionError(f"handler of job {job_name!r} takes no payload: give it a parameter")
    second = parameters[1] if len(parameters) > 1 else None
    takes = second is not None and (second.name == "ctx" or hints.get(second.name) is Context)
    spare = [p for p in parameters[2 if takes else 1 :] if p.default is _MISSING]
    if spare:
        raise DefinitionError(
            f"handler of job {job_name!r} needs {spare[0].name!r}, which a worker cannot give:"
            " it passes the payload, and the context to a second parameter named ctx"
        )
    payload = hints.get(parameters[0].name, _MISSING)
    result = hints.get("return", _MISSING)
    return Signature(job_name, takes, payload, result)


def _hints(function: Callable[..., Any], job_name: str) -> dict[str, Any]:
    target = function if inspect.isroutine(function) else type(function).__call__
    try:
        return typing.get_type_hints(target, include_extras=True)
    except NameError as error:
        raise DefinitionError(
            f"handler of job {job_name!r}: annotation {error.name!r} is not defined where the"
            " function is; import it there (not only under TYPE_CHECKING)"
        ) from None


def check_callback(function: object, what: str, *given: str) -> None:
    """Refuse what cannot be called with these values, or would not do its work when it is.

    Args:
        function: an option of a definition.
        what: how messages name it.
        given: what stands for each value that it is called with.

    Raises:
        DefinitionError: naming the fix.
    """
    if not callable(function):
        raise DefinitionError(f"{what} must be a function, got {function!r}")
    for target in (inspect.unwrap(function), type(function).__call__):
        if inspect.iscoroutinefunction(target) or inspect.isasyncgenfunction(target):
            raise DefinitionError(
                f"{what} is async: mq calls plain functions; call asyncio.run in it"
            )
        if inspect.isgeneratorfunction(target):
            raise DefinitionError(f"{what} is a generator: nothing would run it; leave yield out")
    try:
        signature = inspect.signature(function)
    except ValueError:  # some that are written in C have none
        return
    try:
        signature.bind(*given)
    except TypeError:
        raise DefinitionError(
            f"{what} is called with ({', '.join(given)}), but takes {signature}"
        ) from None


def takes_context(function: Callable[..., Any], before: int, what: str) -> bool:
    """Whether a function takes a context behind `before` others; refuses a wrong shape."""
    if not callable(function):
        raise DefinitionError(f"{what} is not callable: {function!r}")
    plain = inspect.unwrap(function)
    if inspect.iscoroutinefunction(plain) or inspect.isasyncgenfunction(plain):
        raise DefinitionError(f"{what} is async: mq runs plain functions")
    parameters = [
        parameter
        for parameter in inspect.signature(function).parameters.values()
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    needed = [one for one in parameters if one.default is _MISSING]
    if len(parameters) < before or len(needed) > before + 1:
        raise DefinitionError(
            f"{what} takes {len(parameters)} parameters: it gets {before}, and the context behind"
        )
    return len(needed) == before + 1 or (
        len(parameters) > before and parameters[before].name == "ctx"
    )
