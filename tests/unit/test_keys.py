"""Keys, as Python and Lua spell them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mq.keys import SCHEMA, Keys, check_prefix
from mq.scripts import assemble, script_folder
from mq.states import JobState
from mq.store import Store

QUEUE, NAME, ID = "a-queue", "a.name", "an id:with {braces}"
FLOW_KEYS = (
    "flow", "children", "rows", "pending", "unstarted", "owed", "outcomes", "results",
)  # fmt: skip
"""What a parent has beside a job, each by the parent's id."""


def _lua(expression: str, prefix: str = "mq") -> str:
    """The value of an expression behind the keys fragment."""
    folder = script_folder()
    source = (folder / "fragments" / "keys.lua").read_text()
    store = Store("memory://", prefix=prefix)
    reply = store._caller.client.eval(f"{source}\nreturn {expression}", 1, store.keys.meta())
    store.close()
    return bytes(reply).decode()


def _pairs() -> dict[str, tuple[str, str]]:
    keys = Keys("mq")
    failed = JobState.FAILED
    return {
        "meta": ("META_KEY", keys.meta()),
        "seq": ("SEQ_KEY", keys.seq()),
        "active": ("ACTIVE_KEY", keys.active()),
        "job": (f"job_key('{ID}')", keys.job(ID)),
        "payload": (f"payload_key('{ID}')", keys.payload(ID)),
        "extra": (f"extra_key('{ID}')", keys.extra(ID)),
        "exits": (f"exits_key('{ID}')", keys.exits(ID)),
        "waiting": (f"waiting_key('{QUEUE}', '{NAME}')", keys.waiting(QUEUE, NAME)),
        "delayed": (f"delayed_key('{QUEUE}')", keys.delayed(QUEUE)),
        "index": (f"index_key('failed', '{QUEUE}', '{NAME}')", keys.index(failed, QUEUE, NAME)),
        "finished": (
            f"finished_key('failed', '{QUEUE}', '{NAME}')",
            keys.finished(failed, QUEUE, NAME),
        ),
        "expires": ("EXPIRES_KEY", keys.expires()),
        "flows": ("FLOWS_KEY", keys.flows()),
        "owing": ("OWING_KEY", keys.owing()),
        **{name: (f"{name}_key('{ID}')", getattr(keys, name)(ID)) for name in FLOW_KEYS},
        "outbox": ("OUTBOX_KEY", keys.outbox()),
        "report": ("report_key('17')", keys.report("17")),
        "schedules": ("SCHEDULES_KEY", keys.schedules()),
        "paused_schedules": ("PAUSED_SCHEDULES_KEY", keys.paused_schedules()),
        "schedule": (f"schedule_key('{NAME}', 'a:key')", keys.schedule(NAME, "a:key")),
        "metadata": ("metadata_key('customer', 'a:b')", keys.metadata("customer", "a:b")),
        "backfill": ("backfill_key('customer')", keys.backfill("customer")),
        "dedup": (f"dedup_key('{NAME}', 'a:key')", keys.dedup(NAME, "a:key")),
        "windows": ("WINDOWS_KEY", keys.windows()),
        "answered": ("answered_key('nonce')", keys.answered("nonce")),
        "control": ("control_key('w:1')", keys.control("w:1")),
        "claims": ("claims_key('w:1')", keys.claims("w:1")),
        "wake": (f"wake_key('{QUEUE}', '{NAME}')", keys.wake(QUEUE, NAME)),
        "done": ("DONE_CHANNEL", keys.done()),
    }


@pytest.mark.parametrize("key", _pairs())
def test_lua_and_python_spell_a_key_alike(key: str) -> None:
    """Both are asked, and say the same."""
    expression, expected = _pairs()[key]
    assert _lua(expression) == expected


def test_no_key_is_left_out() -> None:
    """A key that is added on one side is missing on the other until both have it."""
    methods = {name for name, member in vars(Keys).items() if callable(member) and name[0] != "_"}
    assert set(_pairs()) == methods
    source = (script_folder() / "fragments" / "keys.lua").read_text()
    defined = re.findall(r"^local (?:function )?(\w+)(?:_key|_KEY|_CHANNEL)\b", source, re.M)
    assert {name.lower() for name in defined} == set(_pairs())


@pytest.mark.parametrize("prefix", ["mq", "a", "A.b-c_9", "x" * 64])
def test_every_key_carries_the_one_hash_tag_first(prefix: str) -> None:
    """A cluster keeps a store in one slot, whatever braces an id has."""
    keys = Keys(prefix)
    for key in (keys.meta(), keys.job("{other}"), keys.wake("q", "n"), keys.control("{w}")):
        assert key.startswith("{" + prefix + "}:")
    assert _lua("job_key('x')", prefix) == keys.job("x")


@pytest.mark.parametrize(
    "prefix", ["", "{mq}", "a b", "a:b", "a*", "a?", "a[b]", "é", "x" * 65, "a\n", None, 5]
)
def test_a_prefix_that_cannot_be_a_hash_tag_is_refused(prefix: object) -> None:
    """An empty tag would be none, and a pattern would make destroy reach too far."""
    with pytest.raises(ValueError, match="is not usable"):
        check_prefix(prefix)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="is not usable"):
        Store("memory://", prefix=prefix)  # type: ignore[arg-type]


def test_kinds_of_keys_cannot_be_mistaken_for_each_other() -> None:
    """An id, last in its key, may hold anything."""
    keys = Keys()
    odd = ["a", "a:b", "queue:name", "", "job:a", "{mq}:meta", "a:children", "flow:a"]
    made = [make(job_id) for make in (keys.job, keys.payload, keys.extra) for job_id in odd]
    made += [keys.exits(job_id) for job_id in odd]
    made += [getattr(keys, name)(job_id) for name in FLOW_KEYS for job_id in odd]
    assert len(set(made)) == len(made)


def test_scripts_check_the_schema_that_python_speaks() -> None:
    """Both name one version of the keyspace."""
    text = assemble("get", script_folder())
    assert f"local SCHEMA = '{SCHEMA}'" in text


def test_scripts_are_beside_the_package_they_belong_to() -> None:
    """The fragment tested here is the one that runs."""
    assert (Path(script_folder()) / "fragments" / "keys.lua").is_file()
