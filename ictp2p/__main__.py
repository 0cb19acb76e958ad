"""`python -m ictp2p` is the `ictp2p` command."""

import sys

from ictp2p.cli import main

if __name__ == "__main__":
    sys.exit(main())
