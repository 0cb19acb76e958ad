import io
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ictp2p.tables import Table, show, tables

STATUS: dict[str, Any] = {
    "state": "TRAINING",
    "round": 7,
    "members": [
        {"cluster": "oslo", "peer": "a1", "status": "ALIVE"},
        {"cluster": "tokyo", "peer": "b2", "status": "SUSPECT", "rank": 1},
    ],
    "leaders": {"oslo": "a1", "tokyo": "b2"},
    "links": {"tokyo": {"delay": 0.0001234, "bandwidth": None}},
    "routes": [],
}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(stream: io.StringIO) -> str:
    show(tables(STATUS), stream)
    return stream.getvalue()


def test_a_status_is_aligned_text() -> None:
    assert shown(io.StringIO()) == (
        "  state  TRAINING\n"
        "  round  7\n"
        "\nmembers\n"
        "  cluster  peer  status   rank\n"
        "  oslo     a1    ALIVE    -\n"
        "  tokyo    b2    SUSPECT  1\n"
        "\nleaders\n"
        "  oslo   a1\n"
        "  tokyo  b2\n"
        "\nlinks\n"
        "         delay      bandwidth\n"
        "  tokyo  0.0001234  -\n"
        "\nroutes\n"
        "  none\n"
    )


def test_a_terminal_gets_the_same_words_from_rich() -> None:
    pytest.importorskip("rich")
    text = shown(Terminal())
    for word in shown(io.StringIO()).split():
        assert word in text


def test_a_terminal_without_rich_gets_aligned_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "rich.console", None)
    assert shown(Terminal()) == shown(io.StringIO())


def test_a_table_is_folded_to_its_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: what is installed without rich wrote lines of 500 characters, which a terminal breaks anywhere."""
    monkeypatch.setitem(__import__("sys").modules, "rich.console", None)
    monkeypatch.setenv("COLUMNS", "40")
    wide = Table("", ("name", "meaning", "set"), (("cluster", "workers of one name train as one", "cluster = ..."),))
    stream = Terminal()
    show([wide], stream)
    assert stream.getvalue() == (
        "  name     meaning         set\n"
        "  cluster  workers of one  cluster = ...\n"
        "           name train as\n"
        "           one\n"
    )
    stream = io.StringIO()
    show([wide], stream)
    assert max(map(len, stream.getvalue().splitlines())) > 40, "programs that read lines get a row in each"
    many = Table("", (), (("a word of eighteen",) * 8,))
    show([many], Terminal())


def test_values_are_written_for_people() -> None:
    (table,) = tables({"yes": True, "none": None, "bytes": b"\xab", "small": 0.123456, "big": 1234567.0})
    assert dict(table.rows) == {"yes": "yes", "none": "-", "bytes": "ab", "small": "0.1235", "big": "1.235e+06"}
    (table,) = tables({"x": [{"list": [1, 2], "set": {"b", "a"}, "map": {"k": 1}, "empty": []}]})
    assert table == Table("x", ("list", "set", "map", "empty"), (("1 2", "a b", "k=1", "-"),))


@given(
    st.dictionaries(
        st.text(max_size=5),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.binary(max_size=3),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
            max_leaves=10,
        ),
        max_size=4,
    )
)
def test_whatever_a_peer_tells_can_be_shown(document: dict[str, Any]) -> None:
    show(tables(document), io.StringIO())
    show(tables(document), Terminal())


@pytest.mark.parametrize("text", ["\x1b]0;taken over\x07", "two\nlines", "\ud800", "\u202etxt", "\x9b2J"])
def test_what_another_host_says_cannot_move_the_terminal_that_shows_it(text: str) -> None:
    """Regression: it was written as it came, and a lone surrogate ended the command with a traceback."""
    document = {text: 1, "members": [{"device": text, text: text}], "b": {text: text}, text * 2: [text, {text: text}]}
    stream = io.StringIO()
    show(tables(document), stream)
    shown = stream.getvalue()
    assert all(line.isprintable() for line in shown.split("\n"))
    assert shown.count(repr(text)[1:-1]) == 11
    shown.encode()
