"""Files that people ask a command for: whatever goes wrong with one names it.

The system names a file that cannot be opened, but not the one for which there was no room.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def written(path: Path) -> Iterator[None]:
    """Write `path` inside of this, and nothing else.

    Raises:
        OSError: it could not be written; the message names it.
    """
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error
