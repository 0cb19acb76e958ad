from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from ictp2p.errors import LocalGroupError, MeshMismatch
from ictp2p.sync.cluster.progress import Progress
from tests.sync.cluster.healing import ITEMS, Worker, grouped


def test_what_is_under_way_on_a_state_has_ended_before_another_one_is_received(
    make_world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: a leader that was deposed in `finish` wrote into what it got: other bytes, one name."""
    workers = [Worker(float(n), Progress(n, 20, 2)) for n in (3, 4, 3)]
    for worker in workers:
        expect = worker.state.expect
        monkeypatch.setattr(
            worker.state, "expect", lambda *given, w=worker, e=expect: (w.calls.append("expect"), e(*given))[1]
        )
    grouped(make_world, *workers)
    assert [worker.calls for worker in workers] == [["withdraw", "expect"], [], ["withdraw", "expect"]]


def test_identical_workers_exchange_nothing_but_a_hello(make_world: Any) -> None:
    world = make_world(a=2)
    workers = [Worker(1.0, Progress()) for _ in range(2)]
    assert grouped(make_world, *workers, world=world) == [False, False]
    assert ("a/0", "broadcast") not in world.counts


@pytest.mark.parametrize(
    ("progresses", "source"),
    [
        ([Progress(0, 0), Progress(0, 0), Progress(0, 0)], 0),
        ([Progress(0, 0), Progress(3, 20, 2), Progress(0, 0)], 1),
        ([Progress(3, 20, 2), Progress(3, 21, 3), Progress(3, 20, 2)], 1),
        ([Progress(3, 24, 4), Progress(4, 24, 0), Progress(3, 24, 4)], 1),
        ([Progress(3, 24, 4), Progress(3, 24, 4), Progress(3, 24, 0)], 2),
        ([Progress(3, 24, 4), Progress(3, 24, 0, 1, brought=5.0), Progress(3, 24, 4)], 1),
        ([Progress(3, 26, 2, 3, brought=5.0), Progress(3, 26, 2, 3, brought=5.0), Progress(3, 26, 2)], 2),
    ],
)
def test_all_become_like_the_one_that_is_furthest(make_world: Any, progresses: list[Progress], source: int) -> None:
    workers = [Worker(float(i + 1), dataclasses.replace(p, weights=[5.0])) for i, p in enumerate(progresses)]
    expected = workers[source].content()
    changed = grouped(make_world, *workers)
    assert changed == [i != source for i in range(3)]
    assert [w.content() for w in workers] == [expected] * 3


@pytest.mark.parametrize(
    ("brought", "source"),
    [([None, 0, None], 1), ([53, 58, 53], 1), ([0, 0, 7], 2), ([58, None, 58], 0), ([None, None, None], 0)],
)
def test_of_what_was_brought_along_the_newest_is_everybodys(
    make_world: Any, brought: list[int | None], source: int
) -> None:
    """Regression: the leader's fresh weights took the place of a mate's checkpoint, and stood in for it by its word."""
    workers = [Worker(float(i + 1), Progress()) for i in range(3)]
    for worker, version in zip(workers, brought, strict=True):
        worker.state.brought = version
    expected = workers[source].state.held(), workers[source].content()
    grouped(make_world, *workers)
    assert [(w.state.held(), w.content()) for w in workers] == [expected] * 3
    assert grouped(make_world, *workers) == [False] * 3, "nobody is told apart any more"


def test_what_was_brought_along_is_no_news_once_there_is_a_version(make_world: Any) -> None:
    """Else a worker that began with a checkpoint and one that did not would copy each other in every new group."""
    workers = [Worker(1.0, Progress()) for _ in range(2)]
    workers[0].state.brought = 7
    for worker in workers:
        worker.state.confirm(9)
        worker.progress.version = 9
    assert grouped(make_world, *workers) == [False, False]


def test_what_a_source_has_computed_may_still_be_committed(make_world: Any) -> None:
    """Regression: its memory was given back, and the commit named a state of which nobody had the content."""
    workers = [Worker(float(i), Progress(3, 20 + i)) for i in range(2)]
    state = workers[1].state
    state.begin()["w"].fill_(7.0)
    state.seal({"round": 4})
    grouped(make_world, *workers)
    assert (workers[0].state.digest, workers[0].state.sealed) == (state.digest, b"")
    sealed = state.sealed
    state.commit(4)
    assert (state.digest, state.committed["w"][0].item()) == (sealed, 7.0)
    workers[1].progress.version = 4
    assert grouped(make_world, *workers) == [True, False]
    assert workers[0].state.digest == sealed


def test_what_a_source_is_computing_is_not_given_back(make_world: Any) -> None:
    """Regression: a round under cover of training was finished while a newcomer was given the state before it."""
    workers = [Worker(float(i), Progress(3, 20 + i)) for i in range(2)]
    state = workers[1].state
    state.begin()["w"].fill_(7.0)
    grouped(make_world, *workers)
    state.seal({"round": 4})
    state.commit(4)
    assert state.committed["w"].eq(7.0).all()
    workers[1].progress.version = 4
    assert grouped(make_world, *workers) == [True, False]
    assert workers[0].state.digest == state.digest


@pytest.mark.parametrize("count", range(2, 12))
def test_a_source_that_dies_leaves_the_others_whole(make_world: Any, killed: Any, count: int) -> None:
    """A worker is as it was or entirely healed, because it may be the only one left."""
    world = make_world(a=2)
    workers = [Worker(1.0, Progress(3, 20)), Worker(2.0, Progress(3, 21))]
    before, after = workers[0].content(), workers[1].content()
    world.faults["a/1", "broadcast", count] = killed

    def tolerant(group: Any) -> bool | None:
        try:
            return workers[0](group)
        except LocalGroupError:
            return None

    (healed, _) = grouped(make_world, tolerant, workers[1], world=world)
    found = workers[0].content()
    if healed is None:
        assert found[:3] == before[:3]
        assert found[4] in (before[4], after[4])
    else:
        assert found == after


def test_a_worker_that_trains_something_else_learns_what(make_world: Any) -> None:
    def odd(group: Any) -> None:
        with pytest.raises(MeshMismatch, match=r"leader a/0 of this cluster.*sync_every: 5 here, 4 there"):
            Worker(1.0, Progress(), [ITEMS[0], ("sync_every", "5")])(group)

    def even(group: Any) -> None:
        with pytest.raises(LocalGroupError, match=r"\['a/1'\] train something else"):
            Worker(1.0, Progress())(group)

    grouped(make_world, even, odd)
