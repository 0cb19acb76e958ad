"""The exceptions are where their page says, and come of each other as it is drawn."""

from __future__ import annotations

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
