"""The direction of imports, and what a module may reach for, read from the source."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "mq"

# A module imports from rows above its own, never from below; within a row as long as there is no
# cycle. A name that ends in /* stands for every module of a sub-package.
ROWS = (
    ("states", "errors", "clock", "durations"),
    ("keys", "cadence", "policies", "records", "validation", "ids", "secret", "unrecoverable"),
    ("typed/*", "codec", "failures", "exits", "scripts"),
    (
        "server_binary",
        "server_process",
        "embedded",
        "wire",
        "listing",
        "connection",
        "calls",
        "doorbell",
        "store/*",
    ),
    (
        "context",
        "signatures",
        "job_options",
        "results",
        "job_verbs",
        "schedules",
        "definitions",
        "manifests",
        "flows",
        "app",
    ),
    ("worker/*", "testing"),
    ("cli/*", "demo/*"),
    ("__init__", "__main__"),
)

# Who alone imports a library at all.
OWNERS = {
    "redis": {"connection", "store/*"},
    "hiredis": set(),
    "msgpack": {"codec"},
    "cattrs": {"codec", "typed/*"},
    "click": {"cli/*"},
    "rich": {"cli/*", "demo/*"},
    "fakeredis": {"connection"},
    "lupa": {"connection"},
    "uuid_utils": {"ids"},
    "cronsim": {"cadence"},
}

# Libraries that are an extra: never imported when a module is.
INSIDE_FUNCTIONS = {"fakeredis", "lupa", "cronsim"}

FORBIDDEN_MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve"}
FORBIDDEN_CALLS = {"eval", "exec", "__import__"}


def sources(folder: Path) -> list[Path]:
    """All Python files under a folder."""
    return sorted(path for path in folder.rglob("*.py") if "__pycache__" not in path.parts)


@cache
def tree_of(path: Path) -> ast.Module:
    """The syntax tree of a file."""
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def name_of(path: Path) -> str:
    """A module's name as the rows write it: ``codec``, ``worker/pool``, ``cli/__init__``."""
    return path.relative_to(PACKAGE).with_suffix("").as_posix()


def matches(name: str, patterns: set[str] | tuple[str, ...]) -> bool:
    """Whether a module's name is among patterns."""
    return any(
        name == pattern or (pattern.endswith("*") and name.startswith(pattern[:-1]))
        for pattern in patterns
    )


def row_of(name: str) -> int:
    """The row a module stands in."""
    for number, row in enumerate(ROWS):
        if matches(name, row):
            return number
    pytest.fail(f"mq/{name}.py stands in no row: add it to ROWS, in the row it belongs to")


def imports(tree: ast.AST) -> Iterator[tuple[ast.stmt, str]]:
    """Each import statement with the absolute name it imports, wherever it stands."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node, alias.name
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"relative import in line {node.lineno}"
            for alias in node.names:
                yield node, f"{node.module}.{alias.name}"
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            first = node.args[0] if node.args else None
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                yield ast.Expr(node, lineno=node.lineno), first.value


def inner(imported: str) -> str | None:
    """The module of ours that an import names, as the rows write it; None for others."""
    parts = imported.split(".")
    if parts[0] != "mq":
        return None
    for length in range(len(parts), 1, -1):
        path = PACKAGE.joinpath(*parts[1:length])
        if path.with_suffix(".py").is_file():
            return name_of(path.with_suffix(".py"))
        if (path / "__init__.py").is_file():
            return name_of(path / "__init__.py")
    return "__init__"


def neighbours(path: Path, *, typing: bool = True) -> set[str]:
    """The modules of ours that a module imports; those for the type checker too, or not."""
    tree = tree_of(path)
    skipped = set() if typing else only_typing(tree)
    return {
        name
        for node, imported in imports(tree)
        if node.lineno not in skipped and (name := inner(imported))
    }


def only_typing(tree: ast.Module) -> set[int]:
    """Lines inside ``if TYPE_CHECKING``: read by the type checker alone."""
    lines: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for inside in node.body:
                lines.update(range(inside.lineno, (inside.end_lineno or inside.lineno) + 1))
    return lines


def inside_functions(tree: ast.Module) -> set[int]:
    """Lines inside functions: run late."""
    return {
        line
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }


MODULES = [pytest.param(path, id=name_of(path)) for path in sources(PACKAGE)]
TESTS = [
    pytest.param(path, id=path.relative_to(ROOT).as_posix())
    for path in sources(ROOT / "tests")
    if "stress" not in path.relative_to(ROOT).parts
]


@pytest.mark.parametrize("path", MODULES)
def test_imports_point_one_way(path: Path) -> None:
    """A module imports from its own row or from rows above it."""
    own = row_of(name_of(path))
    below = sorted(name for name in neighbours(path) if row_of(name) > own)
    assert below == [], f"mq/{name_of(path)}.py imports from below its row"


@pytest.mark.parametrize("path", MODULES)
def test_no_module_imports_the_package_from_inside(path: Path) -> None:
    """``import mq`` inside would run all of it, and close a circle."""
    if name_of(path) in {"__init__", "__main__"}:
        return
    whole = sorted(
        node.lineno for node, imported in imports(tree_of(path)) if inner(imported) == "__init__"
    )
    assert whole == [], "import the sub-module instead"


def test_there_is_no_cycle() -> None:
    """No module imports itself through others when it runs, late imports counted."""
    graph = {name_of(path): neighbours(path, typing=False) for path in sources(PACKAGE)}
    for package in [name for name in graph if name.endswith("/__init__")]:
        # A package's modules may import one another by the package's path.
        graph[package].discard(package)
    done: set[str] = set()

    def visit(name: str, above: tuple[str, ...]) -> None:
        assert name not in above, "cycle: " + " -> ".join((*above[above.index(name) :], name))
        if name in done:
            return
        for other in sorted(graph.get(name, ())):
            visit(other, (*above, name))
        done.add(name)

    for name in sorted(graph):
        visit(name, ())


@pytest.mark.parametrize("path", MODULES)
def test_libraries_stay_with_their_owner(path: Path) -> None:
    """Redis, msgpack and the command line are each reached from one place."""
    name, tree = name_of(path), tree_of(path)
    typing = only_typing(tree)
    strangers = [
        f"line {node.lineno}: {imported}"
        for node, imported in imports(tree)
        if node.lineno not in typing
        and (library := imported.split(".")[0]) in OWNERS
        and not matches(name, OWNERS[library])
    ]
    assert strangers == [], f"mq/{name}.py may not import these"


@pytest.mark.parametrize("path", MODULES)
def test_extras_are_imported_late(path: Path) -> None:
    """What only an extra brings is imported by the function that needs it."""
    tree = tree_of(path)
    late = inside_functions(tree)
    early = [
        f"line {node.lineno}: {imported}"
        for node, imported in imports(tree)
        if imported.split(".")[0] in INSIDE_FUNCTIONS and node.lineno not in late
    ]
    assert early == []


@pytest.mark.parametrize("path", MODULES)
def test_stored_bytes_are_never_code(path: Path) -> None:
    """No pickle and its kind, no eval and its kind."""
    tree = tree_of(path)
    modules = [
        f"line {node.lineno}: {imported}"
        for node, imported in imports(tree)
        if imported.split(".")[0] in FORBIDDEN_MODULES
    ]
    calls = [
        f"line {node.lineno}: {node.func.id}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in FORBIDDEN_CALLS
    ]
    assert modules + calls == []


@pytest.mark.parametrize("path", TESTS)
def test_tests_do_not_sleep(path: Path) -> None:
    """A test waits for what it needs: an event, a queue, `wait_until`."""
    sleeps = [
        f"line {node.lineno}: {ast.unparse(node.func)}"
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in {"sleep", "time.sleep", "asyncio.sleep"}
    ]
    assert sleeps == []


def test_a_stranger_is_told_where_it_belongs() -> None:
    """A module that no row names fails with what to do about it."""
    with pytest.raises(pytest.fail.Exception, match="add it to ROWS"):
        row_of("something_new")


# Who reads the clock of its own host, and what for.
WALL_CLOCK_READERS = {
    "context": "tells a handler when its run will be over; the limit itself goes by monotonic time",
    "cli/worker_logging": "writes the instant of a log line in UTC",
    "cli/output": "shows people how far away an instant is",
}


def test_nothing_is_decided_by_the_clock_of_a_host() -> None:
    """Instants come from the server, durations from the monotonic clock."""
    wall = {"time", "time_ns", "now", "utcnow", "today", "localtime", "gmtime", "ctime"}
    readers = {
        name_of(path)
        for path in sources(PACKAGE)
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Attribute)
        and node.attr in wall
        and ast.unparse(node.value) in {"time", "datetime", "datetime.datetime", "date"}
    }
    assert readers == set(WALL_CLOCK_READERS)
    named = {
        name_of(path)
        for path in sources(PACKAGE)
        for _, imported in imports(tree_of(path))
        if imported in {f"time.{name}" for name in wall}
    }
    assert named == set()
