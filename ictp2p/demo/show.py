"""What one sees while the demo runs: lines above a bar, drawn by rich on a terminal and as plain text elsewhere.

What is worth a line is decided in `narrator`; the two displays only draw. In a pipe, or without rich, the plain one
prints the same words.
"""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, TextIO

if TYPE_CHECKING:
    from rich.console import Console


class Display(Protocol):
    """Where the story goes."""

    def __enter__(self) -> Display:
        """Begin to draw."""
        ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the screen as it is."""
        ...

    def line(self, text: str) -> None:
        """Print something that happened by itself."""
        ...

    def headline(self, text: str) -> None:
        """Print something that the script did, or found."""
        ...

    def progress(self, done: int, total: int, text: str) -> None:
        """Draw how far the script is, and the state of training beside it."""
        ...


def display(stream: TextIO | None = None) -> Display:
    """The best display for `stream`, standard output by default."""
    stream = sys.stdout if stream is None else stream
    if stream.isatty():
        try:
            from rich.console import Console
        except ImportError:
            pass
        else:
            return RichDisplay(Console(file=stream, highlight=False))
    return PlainDisplay(stream)


class PlainDisplay:
    """Lines of text, the bar among them whenever it has moved."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._done = -1

    def __enter__(self) -> PlainDisplay:
        """Nothing to prepare."""
        return self

    def __exit__(self, *error: object) -> None:
        """Nothing to restore."""

    def line(self, text: str) -> None:
        """Print `text`, indented."""
        self._write(f"  {text}")

    def headline(self, text: str) -> None:
        """Print `text` between blank space."""
        self._write(f"\n=== {text}")

    def progress(self, done: int, total: int, text: str) -> None:
        """Print the bar if `done` has changed."""
        if done != self._done:
            self._done = done
            full = round(20 * done / total)
            self._write(f"[{'#' * full}{'.' * (20 - full)}] {done}/{total}  {text}")

    def _write(self, text: str) -> None:
        self._stream.write(text + "\n")
        self._stream.flush()


class RichDisplay:
    """The same lines above a live bar."""

    def __init__(self, console: Console) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        self._progress = Progress(
            TimeElapsedColumn(),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.description}", markup=False),
            console=console,
        )
        self._task = self._progress.add_task("", total=None)

    def __enter__(self) -> RichDisplay:
        """Draw the bar from now on."""
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        """Leave the last bar standing."""
        self._progress.stop()

    def line(self, text: str) -> None:
        """Print `text` dimmed."""
        self._progress.console.print(f"  {text}", style="bright_black", markup=False, soft_wrap=True)

    def headline(self, text: str) -> None:
        """Print `text` bold."""
        self._progress.console.print(f"\n{text}", style="bold", markup=False, soft_wrap=True)

    def progress(self, done: int, total: int, text: str) -> None:
        """Move the bar."""
        self._progress.update(self._task, completed=done, total=total, description=text)
