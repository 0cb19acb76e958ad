"""What a program gave as an option of a policy, held against what it has to be.

A policy takes other people's objects: a model, optimizers, schedules. One of the wrong kind is best named where it was
given; later it is an `AttributeError` in the first round, on all machines, after a night in the queue.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Sequence
from numbers import Integral, Real
from typing import Any

import torch

from ictp2p.collectives.codecs import prices
from ictp2p.errors import ConfigError, shown
from ictp2p.types import ClusterId

AGREED = ("name", "entries", "counters", "describe", "note", "decide", "landed")
"""What a thing that is decided with each round has; see `agreed.Agreed`."""
STATEFUL = ("state_dict", "load_state_dict")
"""What a thing that newcomers take over has."""
_MOST = 2**63 - 1
"""Of a whole number: what is agreed on travels, and is counted, in 64 bits."""


def number(name: str, value: object, fits: Callable[[float], bool], words: str) -> float:
    """A number that fits, as Python's own: NumPy's have another name, and are not packed by everything.

    Raises:
        ConfigError: it is none, or does not fit; `words` say what it should be.
    """
    real = isinstance(value, Real) and not isinstance(value, bool)
    try:
        found = float(value) if real else math.nan  # type: ignore[arg-type]
    except OverflowError:  # beyond all floats, and so beyond what could fit
        found = math.nan
    if math.isnan(found) or not fits(found):
        raise ConfigError(f"{name} {shown(value)} is not {words}")
    return found


def whole(name: str, value: object, least: int | None = None) -> int:
    """A whole number, as Python's own.

    Raises:
        ConfigError: it is none, or, if there is a least one, less than `least` or of more than 64 bits.
    """
    is_whole = isinstance(value, Integral) and not isinstance(value, bool)
    if not is_whole or (least is not None and int(value) < least):  # type: ignore[call-overload]
        bound = "" if least is None else f" of at least {least}"
        raise ConfigError(f"{name} {shown(value)} is not a whole number{bound}")
    if least is not None and int(value) > _MOST:  # type: ignore[call-overload]
        raise ConfigError(f"{name} {shown(value)} takes more than 64 bits")
    return int(value)  # type: ignore[call-overload, no-any-return]


def plain(value: Any) -> Any:
    """What a scalar of NumPy holds, as Python's own; anything else as it is."""
    numpy = sys.modules.get("numpy")  # who gives us one has imported it
    return value.item() if numpy is not None and isinstance(value, numpy.generic) else value


def scalar(value: Any) -> Any:
    """The number in a tensor of one element, which torch takes for a learning rate, or in one of NumPy's scalars.

    Anything else is as it was.
    """
    return value.item() if callable(getattr(value, "numel", None)) and value.numel() == 1 else plain(value)


def flag(name: str, value: object) -> bool:
    """A yes or no, as Python's own.

    Raises:
        ConfigError: it is neither: a word would pass for yes, whatever it says.
    """
    said = plain(value)
    if not isinstance(said, bool):
        raise ConfigError(f"{name} {shown(value)} is neither True nor False")
    return said


def rates(lr: object, momentum: object) -> tuple[float, float]:
    """What every outer optimizer takes, as Python's own numbers; a tensor of one element counts as what is in it.

    Raises:
        ConfigError: the learning rate is not positive and finite, or the momentum not in [0, 1).
    """
    rate = number("outer learning rate", scalar(lr), lambda rate: 0.0 < rate < math.inf, "positive and finite")
    return rate, number("outer momentum", momentum, lambda decay: 0.0 <= decay < 1.0, "in [0, 1)")


def kind(name: str, value: object, wanted: type) -> None:
    """Check what a thing is.

    Raises:
        ConfigError: it is not a `wanted`.
    """
    if not isinstance(value, wanted):
        raise ConfigError(f"{name} must be a {wanted.__module__}.{wanted.__qualname__}, not {shown(value)}")


def optimizer(name: str, value: Any) -> None:
    """Check that a thing is an optimizer whose steps can be hooked.

    Raises:
        ConfigError: it is none; or it is a wrapper of one that has nothing of torch's own, and so no hooks either.
    """
    kind(name, value, torch.optim.Optimizer)
    try:
        value.register_step_pre_hook(lambda *_: None).remove()
    except AttributeError as error:
        raise ConfigError(
            f"{name} is a {type(value).__qualname__}, made without torch.optim.Optimizer.__init__: its steps cannot be "
            "hooked. Give the optimizer that it wraps, and step the wrapper"
        ) from error


def one_of(name: str, value: object, choices: Sequence[str]) -> None:
    """Check a choice.

    Raises:
        ConfigError: it is none of them; an array would be compared with each by its elements.
    """
    if not isinstance(value, str) or value not in choices:
        raise ConfigError(f"{name} {shown(value)} is none of {', '.join(choices)}")


def each_has(name: str, values: object, attributes: Iterable[str]) -> None:
    """Check what things can do.

    Raises:
        ConfigError: they are no sequence, or one of them lacks one of the attributes.
    """
    if not isinstance(values, list | tuple):
        raise ConfigError(f"{name} must be a list, not {shown(values)}")
    for value in values:
        lacking = [attribute for attribute in attributes if not hasattr(value, attribute)]
        if lacking:
            raise ConfigError(f"{name}: {shown(value)} has no {lacking[0]}")


def cluster(peer: object) -> ClusterId:
    """The name of a peer's cluster; of what is no peer an empty one: that is told when a policy of it is entered."""
    return ClusterId(getattr(peer, "cluster", ""))


def connected(peer: object) -> None:
    """Check what a policy is to train with.

    Raises:
        ConfigError: it is no peer, nor anything that does for policies what one does.
        PeerClosed: it is one, but was not started.
    """
    if not hasattr(peer, "outer_round"):
        raise ConfigError(f"peer must be an ictp2p.Peer, not {shown(peer)}")


def codec(name: str) -> None:
    """Check the name of a codec.

    Raises:
        ConfigError: there is none of that name.
    """
    prices.check_name(name)
