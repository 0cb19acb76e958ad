"""Measurements, each a script (`python benchmarks/wan.py`) that may be run by name too (`python -m benchmarks.wan`).

They import each other from their folder, which is put last on the path: it hides nothing.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
