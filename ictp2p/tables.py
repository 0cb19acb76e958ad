"""Text tables for the command line, aligned by hand or drawn by rich; on a terminal they are no wider than that.

What is shown is data of any shape that JSON knows: a list of objects becomes a table with a row each, an object of
objects a table with the key in the first column, an object of scalars two columns, and a scalar a line. So
`ictp2p status` shows whatever a peer tells, also a newer one.
"""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, TextIO

from ictp2p.errors import printable

_GAP = "  "
_NARROW = 12
"""Characters that a column keeps at least, if it has so many: a table of many columns is wider than its terminal."""


@dataclass(frozen=True, slots=True)
class Table:
    """A title, column heads (none for a list of names and values) and rows of text."""

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def tables(document: Mapping[str, Any]) -> list[Table]:
    """One table per key of `document`, the scalars together in the first."""
    plain = {key: value for key, value in document.items() if _is_scalar(value)}
    nested = {key: value for key, value in document.items() if not _is_scalar(value)}
    first = [_table("", plain)] if plain else []
    return [*first, *(_table(_text(title), value) for title, value in nested.items())]


def show(shown: Iterable[Table], stream: TextIO | None = None) -> None:
    """Print tables, with rich if it is installed and `stream` (standard output) is a terminal."""
    stream = sys.stdout if stream is None else stream
    if stream.isatty() and _rich_shows(shown, stream):
        return
    room = shutil.get_terminal_size().columns if stream.isatty() else None
    stream.write("\n".join(_plain(table, room) for table in shown))


def _table(title: str, value: Any) -> Table:
    if isinstance(value, Mapping) and value and all(isinstance(row, Mapping) for row in value.values()):
        return _objects(title, [{"": key, **row} for key, row in value.items()])
    if isinstance(value, Mapping):
        return Table(title, (), tuple((_text(key), _text(item)) for key, item in value.items()))
    if value and all(isinstance(row, Mapping) for row in value):
        return _objects(title, value)
    return Table(title, (), tuple((_text(item),) for item in value))


def _objects(title: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    heads = tuple(dict.fromkeys(key for row in rows for key in row))
    cells = tuple(tuple(_text(row.get(head)) for head in heads) for row in rows)
    return Table(title, tuple(map(_text, heads)), cells)


def _is_scalar(value: object) -> bool:
    return isinstance(value, (str, bytes)) or not isinstance(value, (Mapping, Sequence, set, frozenset))


def _text(value: object) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.4g}"
        case bytes():
            return value.hex()
        case Mapping():
            return " ".join(f"{_text(key)}={_text(item)}" for key, item in value.items()) or "-"
        case list() | tuple():
            return " ".join(map(_text, value)) or "-"
        case set() | frozenset():
            return " ".join(sorted(map(_text, value))) or "-"
        case _:
            return printable(str(value))


def _plain(table: Table, room: int | None) -> str:
    head = f"{table.title}\n" if table.title else ""
    rows = [*([table.heads] if table.heads else []), *table.rows]
    if not rows:
        return f"{head}  none\n"
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    if room is not None:
        _fit(widths, room)
    return head + "".join(f"{line}\n" for row in rows for line in _lines(row, widths))


def _fit(widths: list[int], room: int) -> None:
    """Narrow the widest columns until all have room, or none is left to narrow."""
    while sum(widths) + len(_GAP) * len(widths) > room and max(widths) > _NARROW:
        widths[widths.index(max(widths))] -= 1


def _lines(row: Sequence[str], widths: Sequence[int]) -> Iterator[str]:
    """A row, over as many lines as its fullest cell takes."""
    folded = [
        textwrap.wrap(cell, width) if len(cell) > width else [cell] for cell, width in zip(row, widths, strict=True)
    ]
    for cells in zip_longest(*folded, fillvalue=""):
        padded = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
        yield "".join(f"{_GAP}{cell}" for cell in padded).rstrip()


def _rich_shows(shown: Iterable[Table], stream: TextIO) -> bool:
    try:
        from rich import box
        from rich.console import Console
        from rich.table import Table as RichTable
        from rich.text import Text
    except ImportError:
        return False
    console = Console(file=stream, highlight=False)
    for table in shown:
        drawn = RichTable(
            title=table.title or None, title_justify="left", box=box.SIMPLE_HEAD, show_header=bool(table.heads)
        )
        for column in range(max(map(len, (table.heads, *table.rows)))):
            drawn.add_column(table.heads[column] if table.heads else "", overflow="fold")
        for row in table.rows:
            drawn.add_row(*map(Text, row))
        console.print(drawn if table.rows else f"{table.title}: none", markup=False)
    return True
