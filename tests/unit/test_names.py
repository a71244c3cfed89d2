"""One transition, one script, one verb: the same word everywhere."""

from __future__ import annotations

import inspect

from mq.scripts import load_scripts
from mq.states import SCRIPT_OF_VERB, TRANSITIONS
from mq.store import Store

METHOD_OF_SCRIPT = {
    "get": ("get_job", "get_attempts", "get_states", "get_whole"),  # one read, four questions
    "pause_schedule": ("pause_schedule", "resume_schedule"),  # one mark, set or taken away
    "record_child_results": ("record_child_results",),  # settling is what its last report does
    "schedules": ("list_schedules", "due_schedules"),  # one read of a sorted set, by its end
    "tick": ("tick", "tick_all"),
}
METHOD_OF_VERB = {
    "replace": "enqueue",  # a mode of its dedup key, asked for with the request
    "settle": "record_child_results",  # the report that leaves no child open brings it about
}
VERB_OF_SCRIPT = {
    # A script of its own name is found by it, whatever else it also carries out.
    script: verb
    for verb, script in SCRIPT_OF_VERB.items()
    if script not in {row.verb for row in TRANSITIONS}
}


def _methods() -> set[str]:
    return {name for name, _ in inspect.getmembers(Store, inspect.isfunction)}


def test_every_script_has_a_method_of_its_name() -> None:
    """A reader of a script knows what to call, and the other way round."""
    for script in load_scripts():
        verb = VERB_OF_SCRIPT.get(script, script)
        wanted = METHOD_OF_SCRIPT.get(script, (verb,))
        assert set(wanted) <= _methods(), f"no Store method for {script}.lua"


def test_every_built_verb_is_a_method_and_a_script() -> None:
    """The table's verbs are what the store offers."""
    for verb in {row.verb for row in TRANSITIONS if row.built}:
        assert SCRIPT_OF_VERB.get(verb, verb) in load_scripts()
        assert METHOD_OF_VERB.get(verb, verb) in _methods()


def test_no_planned_verb_is_a_method_yet() -> None:
    """A method without a script would be an empty promise."""
    built = {row.verb for row in TRANSITIONS if row.built}
    for verb in {row.verb for row in TRANSITIONS} - built:
        assert verb not in _methods()


def test_methods_take_the_scripts_arguments_in_their_order() -> None:
    """A single form of an ack reads (id, token, ...) as its script does."""
    for name in load_scripts():
        if name.startswith("ack_") or name == "release":
            parameters = list(inspect.signature(getattr(Store, name)).parameters)
            assert parameters[1:3] == ["job_id", "token"]
