"""Values on a benchmark's command line: one that it cannot run with is refused in words, before anything runs."""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

N = TypeVar("N", int, float)


def count(text: str) -> int:
    """Take a whole number of at least 1."""
    return whole(1)(text)


def positive(text: str) -> float:
    """Take a finite number above 0."""
    value = _number(text, float)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not above 0 and finite")
    return value


def seconds(text: str) -> float:
    """Take a finite number of at least 0."""
    value = _number(text, float)
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not at least 0 and finite")
    return value


def even(text: str) -> int:
    """Take a whole number of at least 2 that can be halved."""
    value = whole(2)(text)
    if value % 2:
        raise argparse.ArgumentTypeError(f"{text} is not even")
    return value


def fraction(text: str) -> float:
    """Take a number above 0 and below 1."""
    value = _number(text, float)
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not above 0 and below 1")
    return value


def whole(least: int, most: float = math.inf) -> Callable[[str], int]:
    """Return what takes whole numbers from `least` to `most`, both included."""

    def taken(text: str) -> int:
        value = _number(text, int)
        if not least <= value <= most:
            bounds = f"at least {least}" if most == math.inf else f"from {least} to {most}"
            raise argparse.ArgumentTypeError(f"{text} is not {bounds}")
        return value

    return taken


def between(least: float, most: float) -> Callable[[str], float]:
    """Return what takes numbers from `least`, above 0, to `most`, both included."""

    def taken(text: str) -> float:
        value = positive(text)
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"{text} is not from {least:g} to {most:g}")
        return value

    return taken


def megabytes(text: str) -> float:
    """Take a size: at least so many elements that every rank has some, at most what a machine may hold."""
    return between(0.001, 1e6)(text)


def named(names: Iterable[str]) -> dict[str, Any]:
    """Return what `add_argument` is given to take some of these names, which its help lists."""
    known = list(names)
    return {"nargs": "+", "choices": known, "metavar": "NAME", "help": f"of {'; '.join(known)}".replace("%", "%%")}


def output(text: str) -> Path:
    """Take a file that can be written to: results of hours are not lost for the want of a folder."""
    path = Path(text)
    if path.is_dir():
        raise argparse.ArgumentTypeError(f"{text!r} is a folder")
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"{text!r}: there is no folder {str(path.parent)!r}")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise argparse.ArgumentTypeError(f"{text!r} cannot be written to")
    return path


def folder(text: str) -> Path:
    """Take a folder for results: one that is there, or can be made, which it then is."""
    path = Path(text)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{text!r} cannot be made a folder: {error.strerror}") from None
    if not os.access(path, os.W_OK):
        raise argparse.ArgumentTypeError(f"{text!r} cannot be written to")
    return path


def _number(text: str, kind: Callable[[str], N]) -> N:
    try:
        return kind(text)
    except ValueError:
        wanted = "whole number" if kind is int else "number"
        raise argparse.ArgumentTypeError(f"{text!r} is no {wanted}") from None
