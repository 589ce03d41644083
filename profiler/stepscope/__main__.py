"""`python -m stepscope` is `stepscope`."""

import sys

from stepscope.cli.main import entry_point

if __name__ == "__main__":
    sys.exit(entry_point())
