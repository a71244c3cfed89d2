"""Writes the parts of these pages that follow from the code.

    python docs/_generate.py          rewrite them
    python docs/_generate.py --check  say which are stale, and exit with 1 when any is

A part stands between `<!-- begin: name -->` and `<!-- end -->`; all else on a page is written by
hand. The answers in redis-cli.md are what its commands print for examples/looking_inside.py.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
import itertools
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from mq import listing, states
from mq.errors import ListOrderUnsupportedError
from mq.keys import Keys
from mq.scripts import load_scripts, script_folder
from mq.states import TRANSITIONS, JobState, Outcome, Transition
from mq.store import REFUSALS

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
Execute = Callable[..., Any]

_PART = re.compile(r"(<!-- begin: (?P<name>[^>]+?) -->\n).*?(<!-- end -->)", re.DOTALL)
_REDIS_BLOCK = re.compile(r"(^```redis\n)(?P<text>.*?)(^```$)", re.MULTILINE | re.DOTALL)
REDIS_PROMPT = "redis> "


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [columns, ["---"] * len(columns), *rows]
    escaped = ([cell.replace("|", "\\|") for cell in line] for line in lines)
    return "".join(f"| {' | '.join(line)} |\n" for line in escaped)


def anchor(verb: str) -> str:
    """Return a link to the section of a verb on the lifecycle page."""
    return f"[{verb}](#{verb})"


def member_texts(kind: type) -> dict[str, str]:
    """Return the sentence below each member of an enum in mq/states.py, by the member's name."""
    tree = ast.parse(Path(states.__file__).read_text(encoding="utf-8"))
    found = next(
        node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == kind.__name__
    )
    texts = {}
    for member, below in itertools.pairwise(found.body):
        if isinstance(member, ast.Assign) and isinstance(below, ast.Expr):
            name = ast.unparse(member.targets[0])
            texts[name] = " ".join(ast.literal_eval(below.value).split())
    return texts


# The lifecycle page


def states_table() -> str:
    """Return the states and what each means."""
    texts = member_texts(JobState)
    return table(
        ("state", "meaning"), ((f"`{state.value}`", texts[state.name]) for state in JobState)
    )


def outcomes_table() -> str:
    """Return the words of the ledger."""
    texts = member_texts(Outcome)
    return table(("outcome", "meaning"), ((f"`{one.value}`", texts[one.name]) for one in Outcome))


def verbs_table() -> str:
    """Return every verb with its script and whether it is built."""
    rows = []
    for verb in dict.fromkeys(row.verb for row in TRANSITIONS):
        built = any(row.built for row in TRANSITIONS if row.verb == verb)
        moves = dict.fromkeys(_move(row) for row in TRANSITIONS if row.verb == verb)
        rows.append((anchor(verb), ", ".join(moves), _script(verb) if built else "*planned*"))
    return table(("verb", "moves", "script"), rows)


def _move(row: Transition) -> str:
    if row.source == row.target:
        return "no change of state"
    return (
        f"{row.source.value if row.source else '-'} → {row.target.value if row.target else 'gone'}"
    )


def _script(verb: str) -> str:
    name = states.SCRIPT_OF_VERB.get(verb, verb)
    return f"[lua/{name}.lua](../lua/{name}.lua)"


def matrix_table() -> str:
    """Return which verb leads from each state to each other one."""
    places: list[JobState | None] = [None, *JobState]
    rows = []
    for source in places:
        cells = ["(nothing)" if source is None else f"`{source.value}`"]
        for target in places:
            verbs = {
                row.verb: row.built
                for row in TRANSITIONS
                if (row.source, row.target) == (source, target)
            }
            if source == target:
                verbs.pop("enqueue", None)  # a duplicate changes nothing anywhere
            cells.append(", ".join(verb if built else f"*{verb}*" for verb, built in verbs.items()))
        rows.append(cells)
    heads = ["from \\ to", *(f"`{state.value}`" if state else "(gone)" for state in places)]
    return table(heads, rows)


def verb_part(verb: str) -> str:
    """Return the table of one verb, and below it why its script must be atomic."""
    groups: dict[tuple[str, str, str, str], list[str]] = {}
    for row in TRANSITIONS:
        if row.verb != verb:
            continue
        target = (
            "unchanged"
            if row.source == row.target
            else f"`{row.target.value}`"
            if row.target
            else "gone"
        )
        ledger = f"`{row.outcome.value}`" if row.outcome else "-"
        source = f"`{row.source.value}`" if row.source else "-"
        groups.setdefault((row.condition, target, f"`{row.word}`", ledger), []).append(source)
    rows = [
        ("any" if len(sources) == len(JobState) else ", ".join(sources), *rest)
        for rest, sources in groups.items()
    ]
    text = table(("from", "when", "to", "answer", "ledger entry"), rows)
    if not any(row.built for row in TRANSITIONS if row.verb == verb):
        return text + "\n*Planned: these rows are decided, and no script carries them out yet.*\n"
    name = states.SCRIPT_OF_VERB.get(verb, verb)
    return f"{text}\n{_script(verb)} says: {reason_of(name)}\n"


def reason_of(name: str) -> str:
    """Return what stands below the header of a script: why it must be atomic."""
    lines = []
    for line in (script_folder() / f"{name}.lua").read_text(encoding="utf-8").splitlines()[7:]:
        if not line.startswith("-- ") or line.startswith("-- include:"):
            break
        lines.append(line.removeprefix("-- "))
    return " ".join(lines)


# The guide on cancelling and administration

STEERING = ("cancel", "cancel_by_key", "retry", "promote", "remove")
"""Verbs on jobs that are there already; beside them stand what their scripts refuse with."""
REFUSED_WITH = {
    "cancel": "not_cancellable",
    "retry": "not_retryable",
    "promote": "not_promotable",
}
"""Their refusals; the verbs that are not here answer False."""


def steering_table() -> str:
    """Return what each steering verb does to a job in each state, and to an id nobody has."""
    places: list[JobState | None] = [*JobState, None]
    rows = []
    for place in places:
        shown = f"`{place.value}`" if place else "(unknown id)"
        rows.append((shown, *(_steered(verb, place) for verb in STEERING)))
    return table(("state", *(f"[{verb}](../lifecycle.md#{verb})" for verb in STEERING)), rows)


def _steered(verb: str, place: JobState | None) -> str:
    for row in states.rows(verb):
        if place is not None and row.source is place:
            if row.target is row.source:
                return f"stays; `{row.word}`"
            return f"→ `{row.target.value}`" if row.target else "gone; `True`"
    refusal = "not_found" if place is None else REFUSED_WITH.get(verb)
    return f"`{REFUSALS[refusal].__name__}`" if refusal and verb in REFUSED_WITH else "`False`"


_ALLOWED_STATES = {
    "any": "any",
    "delayed": '`["delayed"]`',
    "finished": ", ".join(f"`{state}`" for state in JobState if state in states.FINISHED),
}


def routes_table() -> str:
    """Return every order of a list, what it may be combined with, and what serves it."""
    return table(
        ("`order_by`", "states", "queue", "name", "metadata", "read from", "looked up for each"),
        (
            (
                f"`{row.order_by}`",
                _ALLOWED_STATES[row.states],
                "needed" if row.queue else "may be given",
                "may be given",
                "may be given" if row.metadata else "refused",
                _keys_in_code(row.reads),
                row.checks,
            )
            for row in listing.ROUTES
        ),
    )


def _keys_in_code(text: str) -> str:
    return re.sub(r"[a-z]+:<[^\s,;]+>(?=[\s,;]|$)", lambda key: f"`{key[0]}`", text)


REFUSED_QUESTIONS: tuple[Mapping[str, Any], ...] = (
    {"order_by": "priority"},
    {"order_by": "run_at"},
    {"order_by": "run_at", "states": ["delayed"]},
    {"order_by": "run_at", "states": ["delayed"], "queue": "mail", "metadata": {"plan": "free"}},
    {"order_by": "finished_at"},
    {"order_by": "finished_at", "states": ["failed"], "metadata": {"plan": "free"}},
)
"""One question for each way a list can be refused."""


def refused_table() -> str:
    """Return questions that no index serves, and what is answered."""
    return table(
        ("`list` with", "`ListOrderUnsupportedError`"),
        (
            (f"`{', '.join(f'{name}={value!r}' for name, value in asked.items())}`", refusal(asked))
            for asked in REFUSED_QUESTIONS
        ),
    )


def refusal(asked: Mapping[str, Any]) -> str:
    """Return the message of a list that is refused."""
    try:
        listing.route(listing.read_query(**asked))
    except ListOrderUnsupportedError as error:
        return error.message
    raise AssertionError(f"{asked} is served")


# Keys and scripts


def keys_table() -> str:
    """Return every key of a store with what it holds."""
    words = {"job_id": "<id>", "state": SimpleNamespace(value="<state>")}
    rows = []
    for name, function in vars(Keys).items():
        if name.startswith("_") or name == "prefix" or not callable(function):
            continue
        arguments = function.__code__.co_varnames[1 : function.__code__.co_argcount]
        key = function(Keys(), *(words.get(one, f"<{one}>") for one in arguments))
        rows.append((f"`{key}`", " ".join(function.__doc__.split())))
    return table(("key", "holds"), rows)


def scripts_table() -> str:
    """Return every script with its version and moves."""
    rows = [
        (
            f"[{name}](../lua/{name}.lua)",
            str(script.version),
            script.header["Moves"].replace("->", "→"),
        )
        for name, script in load_scripts().items()
    ]
    return table(("script", "version", "moves"), rows)


# The command line


def cli_part() -> str:
    """Return every command with its arguments and options."""
    import click

    from mq.cli.root import root

    parts: list[str] = []

    def describe(command: click.Command, path: str, parent: click.Context | None) -> None:
        context = click.Context(command, info_name=path.rpartition(" ")[2], parent=parent)
        if isinstance(command, click.Group):
            for name in command.list_commands(context):
                found = command.get_command(context, name)
                if found is not None and not found.hidden:
                    describe(found, f"{path} {name}", context)
            return
        usage = " ".join(command.collect_usage_pieces(context))
        summary = (command.help or "").replace("\b", "").strip().split("\n\n")[0]
        parts.append(f"### {path}\n\n{' '.join(summary.split())}\n\n`{path} {usage}`\n")
        rows = [_option(one) for one in command.params if isinstance(one, click.Option)]
        if rows:
            parts.append(table(("option", "default", "meaning"), rows))

    describe(root, "mq", None)
    return "\n".join(parts)


_STATED = re.compile(r"\s*\[default: (.+)\]$")


def _option(option: Any) -> tuple[str, str, str]:
    """Return an option's row: built from its parts, because click's own text differs by release."""
    words = ", ".join(sorted(option.opts, key=len))
    if not option.is_flag:
        choices = "|".join(getattr(option.type, "choices", ()))
        words += f" {option.metavar or choices or option.type.name.upper()}"
    meaning = " ".join((option.help or "").split())
    stated = _STATED.search(meaning)
    if stated:
        return f"`{words}`", stated[1], meaning[: stated.start()]
    default = option.default if isinstance(option.default, str) else "-"
    return f"`{words}`", default, meaning


# The answers of redis-cli


def seed(url: str) -> None:
    """Fill a store as examples/looking_inside.py does, with nonces that are always the same."""
    from mq import ids

    spec = importlib.util.spec_from_file_location(
        "looking_inside", ROOT / "examples" / "looking_inside.py"
    )
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    kept, ids.new_nonce = ids.new_nonce, lambda: "Zr3cQm0bV9xKpWd1uYt7Lg"
    try:
        example.fill(url)
    finally:
        ids.new_nonce = kept


def redis_page(text: str, execute: Execute) -> str:
    """Return a page with the answer of `execute` below every command in its redis blocks."""

    def answered(block: re.Match[str]) -> str:
        commands = [line for line in block["text"].splitlines() if line.startswith(REDIS_PROMPT)]
        lines: list[str] = []
        for command in commands:
            lines += (command, shown(execute(*shlex.split(command.removeprefix(REDIS_PROMPT)))))
        return block[1] + "\n".join(lines) + "\n" + block[3]

    return _REDIS_BLOCK.sub(answered, text)


def shown(reply: Any, indent: str = "") -> str:
    """Return a reply as redis-cli prints it on a terminal."""
    if reply is None:
        return "(nil)"
    if isinstance(reply, int):
        return f"(integer) {reply}"
    if isinstance(reply, bytes | str):
        return quoted(reply.encode() if isinstance(reply, str) else reply)
    if not reply:
        return "(empty array)"
    width = len(str(len(reply)))
    lines: list[str] = []
    for number, item in enumerate(reply, start=1):
        head = f"{number:>{width}}) "
        lines.append((indent if lines else "") + head + shown(item, indent + " " * len(head)))
    return "\n".join(lines)


_ESCAPES = {
    0x5C: "\\\\",
    0x22: '\\"',
    0x0A: "\\n",
    0x0D: "\\r",
    0x09: "\\t",
    0x07: "\\a",
    0x08: "\\b",
}


def quoted(value: bytes) -> str:
    """Return bytes between quotes, escaped as redis-cli escapes them."""
    return f'"{"".join(map(_escaped, value))}"'


def _escaped(byte: int) -> str:
    printable = chr(byte) if 0x20 <= byte < 0x7F else f"\\x{byte:02x}"
    return _ESCAPES.get(byte, printable)


def memory_execute() -> Execute:
    """Return commands on a seeded store in memory."""
    import attrs

    from mq.connection import endpoint_of

    url = "memory://docs-generate"
    seed(url)
    endpoint = endpoint_of(url)
    client = attrs.evolve(endpoint, settings={**endpoint.settings, "protocol": 2}).client()
    client.response_callbacks.clear()
    return client.execute_command


# Putting it together

Parts = Mapping[str, Callable[[], str]]

PARTS: dict[str, Parts] = {
    "lifecycle.md": {
        "states": states_table,
        "outcomes": outcomes_table,
        "verbs": verbs_table,
        "matrix": matrix_table,
        **{
            f"verb {verb}": functools.partial(verb_part, verb)
            for verb in dict.fromkeys(row.verb for row in TRANSITIONS)
        },
    },
    "guides/cancellation-and-admin.md": {
        "steering": steering_table,
        "routes": routes_table,
        "refused lists": refused_table,
    },
    "architecture.md": {"keys": keys_table, "scripts": scripts_table},
    "reference/configuration.md": {"cli": cli_part},
}
"""The generated parts of each page."""


def fill(text: str, parts: Parts) -> str:
    """Return a page with its parts made anew; KeyError for a part that nothing makes."""
    return _PART.sub(lambda found: found[1] + "\n" + parts[found["name"]]() + "\n" + found[3], text)


def part_names(text: str) -> list[str]:
    """Return the names of the parts a page has, in order."""
    return [found["name"] for found in _PART.finditer(text)]


def generated(name: str) -> str:
    """Return what a page must be."""
    text = (DOCS / name).read_text(encoding="utf-8")
    if name == "redis-cli.md":
        return redis_page(text, memory_execute())
    return fill(text, PARTS[name])


def main(arguments: Sequence[str]) -> int:
    """Rewrite what is stale, or only say so; 1 when something was to be said."""
    check = list(arguments) == ["--check"]
    stale = []
    for name in (*PARTS, "redis-cli.md"):
        page = DOCS / name
        new = generated(name)
        if new != page.read_text(encoding="utf-8"):
            stale.append(name)
            if not check:
                page.write_text(new, encoding="utf-8")
    for name in stale:
        print(
            f"docs/{name} {'is stale: run python docs/_generate.py' if check else 'was rewritten'}"
        )
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
