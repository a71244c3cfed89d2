"""How `mq worker` logs: lines on stderr of what is below `mq`, as text or as JSON."""

from __future__ import annotations

import json
import logging
import sys
import time
from datetime import UTC, datetime
from typing import Any

EXTRAS = ("job_id", "job_name", "attempt")
"""What a handler's `ctx.log` adds to its records."""


def configure_logging(level: str, form: str | None) -> None:
    """Set the level of `mq`, and a handler unless the app has set up logging by itself.

    Args:
        level: name of a logging level.
        form: `text` or `json`; None for text, and for leaving an app's own logging alone.
    """
    tree = logging.getLogger("mq")
    tree.setLevel(level)
    if form is None and (tree.handlers or logging.getLogger().handlers):
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JSONFormatter() if form == "json" else _text_formatter())
    tree.addHandler(handler)
    # Each line once, whatever the app does with the root logger.
    tree.propagate = False


def _text_formatter() -> logging.Formatter:
    formatter = logging.Formatter(
        "%(asctime)s.%(msecs)03dZ %(levelname)s %(name)s: %(message)s", "%Y-%m-%dT%H:%M:%S"
    )
    formatter.converter = time.gmtime
    return formatter


class JSONFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        at = datetime.fromtimestamp(record.created, UTC)
        line: dict[str, Any] = {
            "time": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {name: getattr(record, name) for name in EXTRAS if hasattr(record, name)}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)
