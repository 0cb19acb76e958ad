from __future__ import annotations

from math import inf

from hypothesis import given
from hypothesis import strategies as st

from ictp2p.core.packets import Channel
from ictp2p.core.timetable import Timetable

CHANNELS = [Channel.MEMBERS, Channel.MESH, Channel.LINKS]


class Machine:
    """Due when the test says; counts how often it was asked."""

    def __init__(self) -> None:
        self.due: float | None = None
        self.asked = 0

    def next_timeout(self) -> float | None:
        self.asked += 1
        return self.due


times = st.none() | st.floats(0.0, 10.0)


@given(st.lists(st.tuples(st.sampled_from(CHANNELS), times)), st.floats(0.0, 10.0))
def test_it_knows_what_the_machines_want_as_long_as_it_is_told_who_was_touched(
    steps: list[tuple[Channel, float | None]], now: float
) -> None:
    machines = {channel: Machine() for channel in CHANNELS}
    table = Timetable(machines)
    for channel, due in steps:
        machines[channel].due = due
        table.touch(channel)
        wanted = [machine.due for machine in machines.values() if machine.due is not None]
        assert table.next_timeout() == min(wanted, default=inf)
        assert table.due(now) == [c for c in CHANNELS if (d := machines[c].due) is not None and d <= now]


def test_who_was_not_touched_is_not_asked() -> None:
    machines = {channel: Machine() for channel in CHANNELS}
    table = Timetable(machines)
    table.next_timeout()
    table.touch(Channel.MESH)
    table.touch(Channel.HELLO)  # a channel without a machine
    table.next_timeout()
    assert [machine.asked for machine in machines.values()] == [1, 2, 1]
