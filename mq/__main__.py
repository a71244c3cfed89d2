"""`python -m mq` is the command `mq`."""

import sys

from mq.cli import main

if __name__ == "__main__":
    sys.exit(main())
