"""`python -m nfdrl` is the `nfdrl` command."""

import sys

from nfdrl.cli import main

if __name__ == "__main__":
    sys.exit(main())
