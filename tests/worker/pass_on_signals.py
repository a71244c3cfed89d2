"""A parent that starts a worker and sends on what it is sent, as an init of a container does."""

from __future__ import annotations

import signal
import subprocess
import sys

child = subprocess.Popen([sys.executable, "-m", "mq", "worker", "process_jobs:app"])
signal.signal(signal.SIGTERM, lambda number, _: child.send_signal(number))
sys.exit(child.wait())
