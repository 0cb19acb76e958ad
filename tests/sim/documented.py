"""The scenario file that `docs/simulator.md` has as its example."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs" / "simulator.md").read_text()
_FOUND = re.search(r"```toml\n(.*?)```", PAGE, re.DOTALL)
assert _FOUND is not None
EXAMPLE = _FOUND[1]
DOCUMENT = tomllib.loads(EXAMPLE)
