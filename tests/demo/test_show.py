import io
import sys

import pytest

from ictp2p.demo.show import Display, PlainDisplay, RichDisplay, display


def test_the_plain_display_draws_the_bar_only_when_it_moves() -> None:
    stream = io.StringIO()
    with display(stream) as plain:
        assert isinstance(plain, PlainDisplay)
        plain.headline("An act")
        plain.progress(1, 4, "loss 5.00")
        plain.progress(1, 4, "loss 4.90")
        plain.line("something")
        plain.progress(4, 4, "loss 2.00")
    assert stream.getvalue() == (
        "\n=== An act\n[#####...............] 1/4  loss 5.00\n  something\n[####################] 4/4  loss 2.00\n"
    )


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_rich_and_the_same_words() -> None:
    pytest.importorskip("rich")
    stream = Terminal()
    with display(stream) as rich:
        assert isinstance(rich, RichDisplay)
        rich.headline("An act [of 3]")
        rich.line("something [bold]happened[/bold]")
        rich.progress(1, 4, "loss [5.00]")
    for words in ("An act [of 3]", "something [bold]happened[/bold]", "loss [5.00]", "1/4"):
        assert words in stream.getvalue()


def test_a_terminal_without_rich_gets_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rich.console", None)
    plain: Display = display(Terminal())
    assert isinstance(plain, PlainDisplay)
