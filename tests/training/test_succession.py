"""What a process takes over from what it held before; see also `test_mesh`, where it is fetched."""

from __future__ import annotations

import pytest

from ictp2p.concurrency.threads import Threads
from ictp2p.errors import StateError
from ictp2p.sync.state.global_state import GlobalState
from ictp2p.sync.state.manifest import Entry
from ictp2p.sync.values import StateRef
from ictp2p.training import succession

OTHER = StateRef(9, b"another", ())


def made(value: float, *, size: int = 3) -> GlobalState:
    state = GlobalState([Entry("w", "float32", (size,))], [("policy", "any")])
    state.tentative["w"].fill_(value)
    state.seal({"round": 4})
    state.commit(0)
    return state


def test_only_the_state_that_is_wanted_is_taken_over() -> None:
    before, now = made(1.0), made(0.0)
    before.confirm(5)
    wanted = StateRef(5, before.digest, ())
    assert succession.holder(None, wanted) is None
    assert succession.holder(now, wanted) is None, "nothing was held before"
    now.succeed(before)
    assert succession.holder(now, wanted) is before
    assert succession.holder(now, OTHER) is None


def test_all_of_it_goes_to_a_state_of_its_kind_that_holds_nothing_yet() -> None:
    before, receiver = made(1.0), made(2.0)
    fresh, larger, further = made(0.0), made(0.0, size=4), made(0.0)
    further.confirm(3)
    assert succession.heir(fresh, before, receiver) is fresh
    assert [succession.heir(mine, before, receiver) for mine in (None, larger, further)] == [receiver] * 3


def test_what_becomes_of_it_is_told() -> None:
    before, now = made(1.0), made(0.0)
    before.confirm(5)
    succession.hand_on(Threads(), before, StateRef(5, before.digest, ()), now).result(60.0)
    assert (now.version, now.committed["w"].tolist()) == (5, [1.0] * 3)
    with pytest.raises(StateError):
        succession.hand_on(Threads(), before, OTHER, now).result(60.0)
