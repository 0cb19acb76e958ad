"""The benchmarks are scripts that import each other from their folder; last on the path, they hide nothing."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
