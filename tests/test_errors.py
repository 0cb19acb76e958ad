"""The exceptions are where their page says, and come of each other as it is drawn."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from ictp2p import errors

NAMES = {name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, errors.IctError)}


def test_the_tree_of_exceptions_is_drawn_as_it_is() -> None:
    """Regression: `Refused` was in neither, so that a peer in a process of its own told it as `Unreachable`."""
    assert "Refused" in NAMES
    drawn: list[str] = []
    found = {}
    for line in (errors.__doc__ or "").splitlines():
        indent = len(line) - len(line.lstrip(" │├└─"))
        if (words := line[indent:].split()) and words[0] in NAMES:
            depth = indent // 4 - 1
            drawn = [*drawn[:depth], words[0]]
            found[words[0]] = drawn[-2] if depth else "Exception"
    assert found == {name: getattr(errors, name).__bases__[0].__name__ for name in NAMES}


class Unspeakable:
    def __repr__(self) -> str:
        raise RuntimeError("of other people's objects nobody knows")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("x", "'x'"),
        (torch.zeros(2, 2), "tensor([[0., 0.], [0., 0.]])"),
        (10**400, "1" + 116 * "0" + "..."),
        pytest.param(10**5000, "<int that cannot be shown>", id="5000 digits"),
        (Unspeakable(), "<Unspeakable that cannot be shown>"),
    ],
)
def test_a_value_is_shown_on_one_line_and_shortened(value: Any, words: str) -> None:
    """Regression: 400 digits were written out, and of 5000 Python refuses to say anything."""
    assert errors.shown(value) == words
