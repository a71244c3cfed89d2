"""Finding the App that a command line names, its jobs and its stores."""

from __future__ import annotations

import importlib
import os
import site
import sys
import sysconfig
import traceback
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from mq.app import App
from mq.cli.failures import CommandError, misuse
from mq.errors import DefinitionError
from mq.failures import describe

if TYPE_CHECKING:
    from mq.definitions import Job
    from mq.store import Store

OUR_FOLDER = Path(__file__).resolve().parents[1]
_MESSAGE_CHARACTERS = 300


def load_app(spec: str) -> App:
    """Import `module:attribute` and return the App it names; the current directory comes first.

    Raises:
        CommandError: the text has another form, the module cannot be imported, or there is no
            App of that name in it.
    """
    module_name, attribute = _parts(spec)
    here = str(Path.cwd())
    if here not in sys.path[:1]:
        sys.path.insert(0, here)
    module = _import(module_name)
    found: Any = module
    try:
        for step in attribute.split("."):
            found = getattr(found, step)
    except AttributeError:
        raise CommandError(
            f"{module_name} has no attribute {attribute!r}; {_apps_in(module)}"
        ) from None
    if not isinstance(found, App):
        kind = type(found).__name__
        raise CommandError(f"{spec} is of type {kind}, not an mq.App; {_apps_in(module)}")
    return found


def _parts(spec: str) -> tuple[str, str]:
    module, colon, attribute = spec.partition(":")
    if module.endswith(".py") or "/" in module:
        path = module.removesuffix(".py").strip("./").replace("/", ".")
        raise misuse(f"{spec!r} is a path: name the module, such as {path}:{attribute or 'app'}")
    if not colon or not attribute:
        raise misuse(f"{spec!r} names no app: write module:attribute, such as myapp.jobs:app")
    for name in (*module.split("."), *attribute.split(".")):
        if not name.isidentifier():
            raise misuse(f"{spec!r} is no module:attribute, such as myapp.jobs:app")
    return module, attribute


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    # Code of the user's runs here; one that calls sys.exit must not pass for a clean end.
    except (Exception, SystemExit) as error:
        raise CommandError(_import_line(name, error)) from error


def _import_line(name: str, error: BaseException) -> str:
    where = _where(error)
    missing = error.name if isinstance(error, ModuleNotFoundError) else None
    if missing and where is None and (name == missing or name.startswith(f"{missing}.")):
        return (
            f"no module named {missing!r} in {Path.cwd()} or elsewhere on the import path:"
            " check the name, or start in its folder"
        )
    message = describe(error).message
    if len(message) > _MESSAGE_CHARACTERS:
        message = message[:_MESSAGE_CHARACTERS] + "…"
    # `str` of a SyntaxError repeats the place.
    if isinstance(error, SyntaxError):
        message = error.msg
    told = f"{type(error).__name__}: {message}" if message else type(error).__name__
    place = f" at {where}" if where else ""
    return f'cannot import {name}: {told}{place}; python -c "import {name}" shows the traceback'


def _where(error: BaseException) -> str | None:
    """Return file:line of the innermost frame that is the user's own code, or None."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{_short(error.filename)}:{error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not _is_library(frame.filename)]
    return f"{_short(own[-1].filename)}:{own[-1].lineno}" if own else None


def _is_library(filename: str) -> bool:
    if filename.startswith("<"):
        return True
    path = Path(filename).resolve()
    folders = [str(OUR_FOLDER), site.getusersitepackages()]
    folders += [sysconfig.get_path(kind) for kind in ("stdlib", "purelib", "platlib")]
    return any(path.is_relative_to(Path(folder).resolve()) for folder in folders)


def _short(filename: str) -> str:
    relative = os.path.relpath(filename)
    return filename if relative.startswith("..") else relative


def _apps_in(module: ModuleType) -> str:
    names = sorted(name for name, value in vars(module).items() if isinstance(value, App))
    if not names:
        return f"{module.__name__} has no App: write app = mq.App() there"
    return f"its Apps: {', '.join(f'{module.__name__}:{name}' for name in names)}"


def find_job(app: App, spec: str, name: str) -> Job[Any, Any]:
    """Return the definition of a name; CommandError lists those there are."""
    job = app.jobs.get(name)
    if job is None:
        known = ", ".join(sorted(app.jobs)) or "none at all"
        raise misuse(f"no job is named {name!r} in {spec}; it defines {known}")
    return job


def find_store(app: App, name: str) -> Store:
    """Return the store of a name; CommandError lists those there are."""
    try:
        return app.store_named(name)
    except DefinitionError as error:
        raise misuse(error.message) from None
