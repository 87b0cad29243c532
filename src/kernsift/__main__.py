"""`python -m kernsift` is the command line."""

import sys

from kernsift.cli import main

if __name__ == "__main__":
    sys.exit(main())
