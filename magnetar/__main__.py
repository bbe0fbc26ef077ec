"""`python -m magnetar` is the `magnetar` command."""

import sys

from magnetar.broker.cli import main

if __name__ == "__main__":
    sys.exit(main())
