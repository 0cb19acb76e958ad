"""How a field of the configuration says what it is, and how a value is held against that."""

from __future__ import annotations

import contextlib
import functools
import ipaddress
import math
import os
import socket
from collections.abc import Callable, Iterable
from dataclasses import Field, field, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

from ictp2p.errors import ConfigError, nearest, shown
from ictp2p.types import Address

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

PROFILES = ("local", "lan", "wan")
"""Names of the presets of every machine, from the fastest network to the slowest."""
MIN_TOKEN_LENGTH = 16
"""Fewest characters of a join token."""
ISOLATIONS = ("thread", "process")
"""Where a peer can live, seen from its training program."""

_MANY = 2**31
_LONGEST = 1e9
_FASTEST = 1e15
_WIDEST = 1024
"""Bits of a whole number: of a wider one there is no float, and no text without end."""
_LONGEST_HOST = 253
"""Characters of a name that a name server can be asked for."""
_TRUTHS = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}


def unknown(what: str, name: object, known: Iterable[str], before: str = "") -> ConfigError:
    """The error of a name that there is not, with the nearest that there is; `before` stands before each of them."""
    near = nearest(name, known)
    meant = f"{before}{near} may be meant; " if near else ""
    return ConfigError(f"{what} {shown(f'{before}{name}')} is not known: {meant}see `ictp2p config`")


def truth(text: str) -> bool:
    """Read what the environment says of something that is or is not."""
    if text.lower() not in _TRUTHS:
        raise ConfigError(f"{text!r} is not valid: use one of {', '.join(_TRUTHS)}")
    return _TRUTHS[text.lower()]


def parameter(unit: str, meaning: str, check: Callable[[Any], object] | None = None, **options: Any) -> Any:
    """Declare a dataclass field that can be set; `check` raises a `ConfigError` for a value that cannot be right."""
    return field(metadata={"unit": unit, "meaning": meaning, "check": check or (lambda _: None)}, **options)


def address(text: str) -> None:
    """Check `host:port`."""
    _read(text)


def dialed(text: str) -> Address:
    """Read `host:port` of somebody to be dialed: neither port 0, which the system chooses, nor a host that means all.

    Raises:
        ConfigError: it is none, or one only to listen on.
    """
    found = _read(text)
    if found.port == 0:
        raise ConfigError(f"address {text!r} is not valid: nobody can dial port 0")
    if _means_all(found.host):
        raise ConfigError(f"address {text!r} is not valid: others cannot dial {found.host}, it is one to listen on")
    return found


def _read(text: str) -> Address:
    """Read `host:port` whose host could have an address: else a peer would go on asking for it until its time is over.

    Raises:
        ConfigError: it is none.
    """
    found = Address.parse(text)
    try:
        host = found.host if ":" in found.host else found.host.encode("idna").decode()
    except UnicodeError:
        host = ""
    if not (host.isprintable() and 0 < len(host) <= _LONGEST_HOST):
        raise ConfigError(f"address {shown(text)} is not valid: no host can have that name")
    return found


def _means_all(host: str) -> bool:
    """Whether a host stands for every address of a machine, as 0.0.0.0 does, also if it is cut short to 0."""
    with contextlib.suppress(OSError, ValueError):
        return socket.inet_aton(host) == bytes(4)
    with contextlib.suppress(ValueError):
        found = ipaddress.IPv6Address(host)
        return found.is_unspecified or found.ipv4_mapped == ipaddress.IPv4Address(0)
    return False


def advertised(text: str) -> None:
    """Check `host:port`, nothing, or the word `none`."""
    if text not in ("", "none"):
        dialed(text)


def addresses(texts: tuple[str, ...]) -> None:
    """Check several times `host:port`."""
    for text in texts:
        dialed(text)


def rate(value: float | None) -> None:
    """Check bytes per second, if a limit is given.

    Below the least a chunk takes for ever. The most is far beyond any card, and still within the 64 bits in which the
    kernel is told: whoever means no limit leaves it out.
    """
    if value is not None and not 1 <= value <= _FASTEST:
        raise ConfigError(f"{value!r} is not valid: it must be between 1 and {_FASTEST:g} bytes/s, or be left out")


def duration(value: float) -> None:
    """Check seconds to wait: no clock of any library that they are given to counts further than this."""
    if not 0 < value <= _LONGEST:
        raise ConfigError(f"{value!r} is not valid: it must be above 0 and at most {_LONGEST:g}, which is 31 years")


def folder(value: str | None) -> None:
    """Check a path, if there is one: an empty one, from a variable that is not set, would be as if none was given."""
    if value is not None and not _names_folder(value):
        raise ConfigError(f"{value!r} is not valid: it must name a folder, or be left out")
    if value is not None and value.startswith("~"):
        raise ConfigError(f"{value!r} is not valid: only a shell knows what ~ is; give the path, or os.path.expanduser")


def _names_folder(value: str) -> bool:
    try:
        return bool(os.fsencode(value)) and "\0" not in value
    except UnicodeEncodeError:
        return False


def room(value: int) -> None:
    """Check bytes of memory for contributions: what plans take without asking, up to what no machine should give."""
    if not 2**25 <= value <= 2**36:
        raise ConfigError(f"{value!r} is not valid: it must be between {2**25} (32 MiB) and {2**36} bytes")


def at_least_two(value: int) -> None:
    """Check a number of things that only matter together."""
    if not 2 <= value < _MANY:
        raise ConfigError(f"{value!r} is not valid: it must be at least 2, and less than {_MANY}")


def order(value: int) -> None:
    """Check a place in an order of preference; it travels as a whole number of the wire, which has an end."""
    if not -_MANY <= value < _MANY:
        raise ConfigError(f"{value!r} is not valid: it must be between {-_MANY} and {_MANY - 1}")


def patience(value: float) -> None:
    """Check a duration that may be infinite."""
    if not (0 < value <= _LONGEST or value == math.inf):
        raise ConfigError(
            f"{value!r} is not valid: it must be above 0 and at most {_LONGEST:g}, which is 31 years, or inf: for ever"
        )


def secret(value: str) -> None:
    """Check a join token, and repeat nothing of it: an error is shown on screens and kept in logs."""
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ConfigError("it must be text, in UTF-8") from None
    if value != value.strip():
        raise ConfigError("it begins or ends with white space: every member would need the same")
    if len(value) < MIN_TOKEN_LENGTH:
        few = f"it has {len(value)} characters, at least {MIN_TOKEN_LENGTH} are needed"
        raise ConfigError(f"{few}: draw one with `ictp2p token`")


def isolated(value: str) -> None:
    """Check where a peer is to live."""
    if value not in ISOLATIONS:
        raise ConfigError(f"{value!r} is not valid: use one of {', '.join(ISOLATIONS)}")
    if value == "process" and not hasattr(os, "memfd_create"):
        raise ConfigError("'process' is not valid here: it needs Linux, for memory that two processes share")


def profile(value: str) -> None:
    """Check the name of a profile."""
    if value not in PROFILES:
        raise ConfigError(f"{value!r} is not valid: use one of {', '.join(PROFILES)}")


def type_of(owner: type, name: str) -> Any:
    """The declared type of a field."""
    return _types_of(owner)[name]


_types_of = functools.cache(get_type_hints)  # it compiles every annotation, and is asked for each field of each value


def validate(value: DataclassInstance) -> None:
    """Check every field of a value that is being made, and put what TOML and people write into its declared type.

    Raises:
        ConfigError: naming the field and what was given.
    """
    for f in fields(value):
        object.__setattr__(value, f.name, checked(type(value), f, getattr(value, f.name), f.name))


def checked(owner: type, f: Field[Any], value: Any, called: str) -> Any:
    """Put what was given for a field of `owner` into its declared type, and check it.

    Raises:
        ConfigError: naming the value by what its giver calls it: the field, or a variable of the environment.
    """
    try:
        cleaned = _typed(value, type_of(owner, f.name))
        f.metadata["check"](cleaned)
    except ConfigError as error:
        if not f.repr:  # a secret is not for a log either, not even a malformed one: its check does not repeat it
            said = str(error) if isinstance(value, str) else "it must be text, in UTF-8"
            raise ConfigError(f"{called} is not valid: {said}") from None
        raise ConfigError(f"{called}: {error}") from error
    return cleaned


def _typed(value: Any, kind: Any) -> Any:
    """An int may stand for a float, a list for a tuple, a path for its text; nothing else is converted."""
    match kind, value:
        case _, None if kind in (str | None, float | None):
            return None
        case _, int() if value.bit_length() > _WIDEST:
            raise ConfigError(f"a whole number of {value.bit_length()} bits is not valid: it is too large")
        case _, bool() if kind is not bool:
            pass
        case _, int() | float() if kind in (float, float | None):
            return float(value)
        case _, str() | Path() if kind in (str, str | None):
            return str(value)
        case _, list() | tuple() if kind == tuple[str, ...] and all(isinstance(item, str) for item in value):
            return tuple(value)
        case type(), _ if isinstance(value, kind):
            return value
    raise ConfigError(f"{shown(value)} is not valid: it must be of type {in_words(kind)}")


def in_words(kind: Any) -> str:
    """A declared type, as people know it who wrote the value in Python, TOML or the environment."""
    if is_dataclass(kind):
        return "table of seconds by name, as in {'stall': 30.0}"
    return _WORDS.get(kind) or str(getattr(kind, "__name__", kind))


_WORDS = {
    str | None: "str",
    float | None: "float",
    tuple[str, ...]: "list of str, as in ['192.0.2.7:7000']",
}
