"""A worker process with options that the command line does not have."""

from __future__ import annotations

import importlib
import json
import logging
import resource
import sys

from mq.worker.signals import StopSignals

signals = StopSignals()
signals.install()
print("signals handled", flush=True)

import mq  # noqa: E402 a signal during the imports is a signal at start-up

# Some jobs crash the process on purpose, and nobody wants their memory.
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s %(message)s")
module, _, attribute = sys.argv[1].partition(":")
app = getattr(importlib.import_module(module), attribute)
sys.exit(mq.Worker(app, **json.loads(sys.argv[2])).run(signals))
