"""The error tree: what the docstring draws is what there is."""

from __future__ import annotations

import inspect

import pytest

from mq import errors

CLASSES = {
    name: kind
    for name, kind in vars(errors).items()
    if inspect.isclass(kind) and issubclass(kind, errors.MQError)
}


def test_the_tree_in_the_docstring_names_every_error_with_its_parent() -> None:
    """Indentation in the docstring is inheritance in the code."""
    parents: dict[str, str | None] = {}
    above: list[tuple[int, str]] = []
    for line in (errors.__doc__ or "").splitlines():
        if not line.startswith("    ") or not line.split():
            continue
        depth, name = len(line) - len(line.lstrip()), line.split()[0]
        above = [(at, other) for at, other in above if at < depth]
        parents[name] = above[-1][1] if above else None
        above.append((depth, name))
    actual = {
        name: None if kind is errors.MQError else kind.__bases__[0].__name__
        for name, kind in CLASSES.items()
    }
    assert actual == parents


@pytest.mark.parametrize("kind", [k for k in CLASSES.values() if k is not errors.PayloadError])
def test_every_error_carries_job_id_and_state_and_a_message_of_one_line(
    kind: type[errors.MQError],
) -> None:
    """Fields are keyword-only, and line breaks become blanks."""
    error = kind("job 7\n  is gone\ud83d", job_id="7", state="failed")
    assert (str(error), error.message) == ("job 7 is gone\\ud83d",) * 2
    assert (error.job_id, error.state) == ("7", "failed")
    assert (kind("x").job_id, kind("x").state) == (None, None)
    with pytest.raises(TypeError):
        kind("x", "7")  # type: ignore[misc, arg-type]


@pytest.mark.parametrize(
    ("kind", "builtin"),
    [
        (errors.AwaitTimeoutError, TimeoutError),
        (errors.DefinitionError, TypeError),
        (errors.PayloadError, ValueError),
    ],
)
def test_some_errors_are_builtin_ones_too(
    kind: type[errors.MQError], builtin: type[Exception]
) -> None:
    """Callers who know Python's own errors catch these without knowing mq."""
    assert issubclass(kind, builtin)


def test_payload_error_keeps_path_and_reason() -> None:
    """The message joins what, path and reason."""
    error = errors.PayloadError("$.a", "is NaN", what="payload of x")
    assert (error.path, error.reason) == ("$.a", "is NaN")
    assert str(error) == "payload of x $.a: is NaN"


def test_job_failed_error_keeps_the_remote_traceback_as_it_was() -> None:
    """Only the message is brought onto one line."""
    error = errors.JobFailedError(
        "job 7 failed", failed_reason="r", error_type="KeyError", remote_traceback="a\nb"
    )
    assert (error.failed_reason, error.error_type, error.remote_traceback) == (
        "r",
        "KeyError",
        "a\nb",
    )
