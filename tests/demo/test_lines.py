import io
import json
import os
import queue
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ictp2p
from ictp2p.demo import lines
from ictp2p.demo.lines import Commands, Events

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text().filter(lambda name: name != "kind"), plain, max_size=5), st.text())
def test_an_event_arrives_as_it_left_on_one_line(fields: dict[str, object], kind: str) -> None:
    line = lines.encode({"kind": kind, **fields})
    assert "\n" not in line
    assert lines.decode(line + "\n") == {"kind": kind, **fields}


@given(st.text())
def test_chatter_is_no_event(text: str) -> None:
    event = lines.decode(text)
    assert event is None or isinstance(event["kind"], str)


@pytest.mark.parametrize("line", ["", "{", "[]", "42", "null", '{"kind": 3}', '{"time": 1}', '"kind"', "[Gloo] hi"])
def test_what_is_not_an_object_with_a_kind_is_chatter(line: str) -> None:
    assert lines.decode(line) is None


def test_values_that_json_does_not_know_are_told_as_text() -> None:
    event = {"kind": "x", "digest": b"\xab", "who": frozenset({"b", "a"}), "path": Path("p")}
    assert json.loads(lines.encode(event)) == {"kind": "x", "digest": "ab", "who": ["a", "b"], "path": "p"}


class Contested(io.StringIO):
    """Its first writer lingers until a second one has come in beside it, or clearly cannot."""

    def __init__(self) -> None:
        super().__init__()
        self.first_is_in = threading.Event()
        self.met = False
        self._second_is_in = threading.Event()

    def write(self, text: str) -> int:
        if self.first_is_in.is_set():
            self._second_is_in.set()
        else:
            self.first_is_in.set()
            self.met = self._second_is_in.wait(timeout=0.2)
        return super().write(text)


def test_events_of_two_threads_do_not_mix() -> None:
    stream = Contested()
    events = Events(stream)
    first = threading.Thread(target=events.say, args=("first",))
    first.start()
    assert stream.first_is_in.wait(timeout=10)
    events.say("second")
    first.join()
    assert not stream.met
    assert [event and event["kind"] for event in map(lines.decode, stream.getvalue().splitlines())] == [
        "first",
        "second",
    ]


def test_whatever_else_prints_goes_to_standard_error() -> None:
    program = (
        "import os; from ictp2p.demo.lines import Events; events = Events.take_stdout();"
        "os.write(1, b'from C++\\n'); print('from Python', flush=True); events({'kind': 'mine'})"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(ictp2p.__file__).parents[1])}
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment, timeout=50
    )
    assert ran.stdout == '{"kind":"mine"}\n'
    assert ran.stderr == "from C++\nfrom Python\n"


def test_commands_are_queued_or_handled_and_their_end_is_noticed() -> None:
    happened: queue.SimpleQueue[str] = queue.SimpleQueue()
    told = io.StringIO('{"do": "go"}\n{"do": "drain"}\n{"do": "stop", "version": 7}\n')
    commands = Commands(told, orphaned=lambda: happened.put("orphaned"))
    commands.on("drain", lambda: happened.put("drained"))
    assert commands.take() is None
    commands.start()
    assert happened.get(timeout=10) == "drained"
    assert happened.get(timeout=10) == "orphaned"
    assert commands.wait() == {"do": "go"}
    assert commands.take() == {"do": "stop", "version": 7}
    assert commands.take() is None
