"""Files that people ask a command for: whatever goes wrong with one names it.

The system names a file that cannot be opened, but not the one for which there was no room.
"""

from __future__ import annotations

from pathlib import Path

from ictp2p.errors import ConfigError, Translated


def make_room(path: Path) -> None:
    """Find out before a run whether `path` can be written, not minutes later; a new file is there once it is written.

    Raises:
        ConfigError: it cannot; the message names it.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        new = not path.exists()
        path.open("ab").close()
        if new:
            path.unlink()
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from error


def written(path: Path) -> Translated[OSError]:
    """Write `path` inside of this, and nothing else.

    Raises:
        OSError: it could not be written; the message names it.
    """

    def named(error: OSError) -> None:
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error

    return Translated(OSError, named)


class Output:
    """A text file that is written line by line, among much else that may go wrong.

    Args:
        path: of the file; what was in it is gone.

    Raises:
        OSError: it could not be opened, written or closed; the message names it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        with written(path):
            self._file = path.open("w", buffering=1)  # by lines: that there is no room is known at once, not at the end

    def write(self, text: str) -> None:
        """Add some text."""
        with written(self._path):
            self._file.write(text)

    def close(self) -> None:
        """Write what still waits, and end."""
        with written(self._path):
            self._file.close()
