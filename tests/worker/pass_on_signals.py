"""A parent that starts a worker and sends on what it is sent, as an init of a container does."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

options = json.dumps({"poll_interval": "60s", "shutdown_grace": "10s", "concurrency": 1})
child = subprocess.Popen([sys.executable, "run_worker.py", "process_jobs:app", options])
signal.signal(signal.SIGTERM, lambda number, _: child.send_signal(number))
sys.exit(child.wait())
