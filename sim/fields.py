"""Plain data (from TOML or JSON) read field by field, with errors that say where and what.

table = Fields("cluster[1]", data)
table.number("delay", 0.02, Limits(least=0))
table.done()                            # whatever was not asked for is not known
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ictp2p.errors import ConfigError
from sim.limits import COUNT, SHARE, Limits, as_float

_MISSING = object()
_ANY = Limits()


class Fields:
    """One table.

    Args:
        where: its name, for messages; empty for the whole document.
        data: what was read.
    """

    def __init__(self, where: str, data: object) -> None:
        if not isinstance(data, Mapping):
            raise ConfigError(f"{where or 'the document'} must be a table, not {data!r}")
        self._where = where
        self._data = data
        self._asked: dict[str, None] = {}

    def number(self, key: str, default: float | None = None, limits: Limits = _ANY) -> float:
        """A number within limits."""
        value = self._take(key, default)
        if why := limits.objection(value):
            raise self.wrong(key, why)
        return as_float(value)

    def share(self, key: str, default: float) -> float:
        """A probability below 1."""
        return self.number(key, default, SHARE)

    def count(self, key: str, default: int | None = None, limits: Limits = COUNT) -> int:
        """A whole number within limits."""
        value = self._take(key, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.wrong(key, "must be a whole number")
        if why := limits.objection(value):
            raise self.wrong(key, why)
        return value

    def text(self, key: str, default: str | None = None, *, of: Sequence[str] = ()) -> str:
        """A text, maybe one of a few."""
        value = self._take(key, default)
        if not isinstance(value, str):
            raise self.wrong(key, "must be text")
        if of and value not in of:
            raise self.wrong(key, f"must be one of {', '.join(of)}")
        return value

    def flag(self, key: str, default: bool) -> bool:
        """True or false."""
        value = self._take(key, default)
        if not isinstance(value, bool):
            raise self.wrong(key, "must be true or false")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of texts; empty if it is not there."""
        value = self._take(key, [])
        if not isinstance(value, (list, tuple)) or not all(isinstance(item, str) for item in value):
            raise self.wrong(key, "must be a list of texts")
        return tuple(value)

    def items(self, key: str) -> list[Any]:
        """A list of anything; empty if it is not there."""
        value = self._take(key, [])
        if not isinstance(value, list):
            raise self.wrong(key, "must be a list")
        return value

    def tables(self, key: str) -> list[Fields]:
        """The tables of a list, as `[[key]]` in TOML."""
        return [Fields(f"{self._path(key)}[{n}]", item) for n, item in enumerate(self.items(key))]

    def table(self, key: str) -> Fields:
        """One table; empty if it is not there."""
        return Fields(self._path(key), self._take(key, {}))

    def has(self, key: str) -> bool:
        """Whether the key is there."""
        return key in self._data

    def raw(self) -> dict[str, Any]:
        """Everything, for somebody else to read."""
        self._asked.update(dict.fromkeys(self._data))
        return dict(self._data)

    def done(self) -> None:
        """Complain about what nobody asked for."""
        for key in self._data:
            if key not in self._asked:
                known = ", ".join(self._asked) or "none"
                raise ConfigError(f"{self._path(key)} is not known: use {known}")

    def wrong(self, key: str, why: str) -> ConfigError:
        """Make the error for a value that cannot be."""
        return ConfigError(f"{self._path(key)} = {self._data.get(key)!r} {why}")

    def _take(self, key: str, default: object) -> Any:
        self._asked[key] = None
        value = self._data.get(key, _MISSING)
        if value is not _MISSING:
            return value
        if default is None:
            raise ConfigError(f"{self._path(key)} is missing")
        return default

    def _path(self, key: str) -> str:
        return f"{self._where}.{key}" if self._where else key
