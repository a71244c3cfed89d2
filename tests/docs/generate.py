"""Loads `docs/_generate.py`, which is a program beside the pages and in no package."""

from __future__ import annotations

import importlib.util
from types import ModuleType

from docs.blocks import DOCS


def _load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_generate", DOCS / "_generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


generate = _load()
