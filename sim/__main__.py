"""`python -m sim` is `ictp2p sim`."""

import sys

from ictp2p.cli import main

sys.exit(main(["sim", *sys.argv[1:]]))
