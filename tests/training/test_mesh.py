"""The mesh as training threads have it, over real peers in a simulated world."""

from concurrent.futures import Future
from threading import Event, Thread
from types import SimpleNamespace
from typing import Any

import pytest

from ictp2p.concurrency.threads import Threads
from ictp2p.config import Config
from ictp2p.errors import GroupUnbuilt, GroupUnmet, LocalGroupError, RoundTimeout, StateError
from ictp2p.handle import LeftOut, Regrouped
from ictp2p.runtime.life import Life
from ictp2p.sync.mesh import Receiver
from ictp2p.sync.rosters.roster import Breach, Roster
from ictp2p.sync.state.global_state import GlobalState
from ictp2p.sync.state.manifest import Entry
from ictp2p.sync.state.own import Name, OwnState, PathState
from ictp2p.sync.values import StateRef
from ictp2p.training.mesh import TrainingMesh
from ictp2p.types import PeerId
from sim.training import Training
from sim.world import World


def test_a_newcomer_that_comes_before_the_leader_has_looked_at_its_roster_is_let_in() -> None:
    """Several workers that start at once are the rule; the leader is told of each newcomer once."""

    def program(training: Training) -> set[PeerId]:
        training.roster_ready(True)
        if training.host.name == "a/0":
            training.compute(10.0)
        roster = training.wait_roster(None)
        if training.roster_moves(roster.generation):
            training.roster_boundary(0)
            roster = training.wait_roster(roster.generation)
        return set(roster.members)

    with World(seed=1) as world:
        world.cluster("a", workers=1, program=program)
        late = world.host("a", at=5.0)
        found = world.train(within=60.0)
        assert len(found["a/0"]) == 2
        assert found["a/0"] == found[late.name]


@pytest.mark.parametrize(
    ("error", "breaches"),
    [
        (GroupUnmet("late"), [Breach("unmet", "late")]),
        (GroupUnbuilt("no descriptors"), [Breach("unbuilt", "no descriptors")]),
        (LocalGroupError("reset"), []),
    ],
)
def test_whose_fault_a_group_is_that_does_not_come_about_is_told_before_it_is_given_up(
    error: LocalGroupError, breaches: list[Breach]
) -> None:
    class Failing:
        generation, rank, size = (1, 2), 0, 2

        def open(self) -> None:
            raise error

    class Mesh(TrainingMesh):
        def _make_group(self, roster: Roster, patience: object) -> Any:
            return Failing()

    peer: Any = Listening()
    life: Any = None
    mesh = Mesh(peer, life)
    mesh.roster_ready(True)
    with pytest.raises(LocalGroupError):
        mesh.open_group(Roster(1, 2, ("a", "b"), "127.0.0.1:1", 0))
    assert peer.told[1:] == [("attends", "meets", (1, 2)), *(("failed", (1, 2), breach) for breach in breaches)]


class Listening:
    """A peer that notes what it is told."""

    threads = Threads()
    config = Config.local(cluster="a", token="0123456789abcdef0123456789abcdef")

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []

    def subscribe(self, subscriber: object) -> None: ...

    def equip(self, device: object) -> None: ...

    def wants(self, ready: bool, device: object, calls: bool) -> None:
        self.told.append(("wants", ready, calls))

    def wants_out(self, device: object) -> None:
        self.told.append(("wants", False))

    def attends(self, stage: str, generation: tuple[int, int]) -> None:
        self.told.append(("attends", stage, generation))

    def failed(self, generation: tuple[int, int], breach: Breach) -> None:
        self.told.append(("failed", generation, breach))

    def set_training(self, training: bool, config: bytes | None = None) -> None:
        self.told.append(("training", training))


def test_who_waits_for_a_roster_says_so_with_each_that_comes() -> None:
    """It is left out as standing still if it does not; and nothing but news would have it say so."""
    left_out = Roster(1, 2, ("b",), "127.0.0.1:1", 0, absent=("a",))
    news = [LeftOut(left_out), Regrouped(Roster(1, 3, ("a", "b"), "127.0.0.1:1", 0), ())]

    class Telling(Listening):
        def clock(self) -> float:
            return 0.0

        def attends(self, stage: str, generation: Any) -> None:
            super().attends(stage, generation)
            if news:
                mesh._hear(news.pop(0))

    peer: Any = Telling()
    mesh = TrainingMesh(peer, Life(lambda kind, **fields: None))
    assert mesh.wait_roster(None).number == 3
    assert peer.told == [("attends", "waits", (0, 0))] * 2


def test_calls_wait_longer_for_workers_of_the_last_group_than_a_policy() -> None:
    peer: Any = Listening()
    mesh = TrainingMesh(peer, Life(lambda kind, **fields: None))
    mesh.calls_ready(True)
    mesh.calls_ready(False)
    mesh.roster_ready(True)
    assert [told for told in peer.told if told[0] == "wants"] == [
        ("wants", True, True),
        ("wants", False),
        ("wants", True, False),
    ]


class Expecting:
    """A state that takes long to compare with what is expected (`sync.mesh.Receiver`)."""

    own = False
    incoming: Any = None

    def __init__(self) -> None:
        self.inside, self.go_on = Event(), Event()
        self.done: list[object] = []

    def expect(self, encoded: bytes, digest: bytes) -> list[int]:
        self.inside.set()
        self.go_on.wait()
        self.done.append("expect")
        return [0]

    def take(self, index: int, data: memoryview) -> None:
        self.done.append(index)

    def verified(self, version: int) -> None:
        self.done.append("verified")


def test_a_fetch_that_was_given_up_does_nothing_more_to_the_state() -> None:
    """The owner goes on with it at once: what came now would be written over what it does."""
    lent: list[Receiver] = []

    class Fetching(Listening):
        agreed = None

        def fetch_state(self, ref: StateRef, state: Receiver) -> Future[None]:
            lent.append(state)
            Thread(target=state.expect, args=(b"", b""), daemon=True).start()
            return Future()

        def wait(self, future: Future[None], timeout: float) -> None:
            raise TimeoutError

    state, peer = Expecting(), Fetching()

    def deadline() -> None:
        state.inside.wait()
        state.go_on.set()
        raise RoundTimeout("the call took too long")

    mesh = TrainingMesh(peer, None)  # type: ignore[arg-type]
    with pytest.raises(RoundTimeout):
        mesh.fetch_state(StateRef(2, b"", ()), state, deadline)
    assert state.done == ["expect"], "a thread is still at work in it"
    lent[0].take(0, memoryview(b""))
    with pytest.raises(StateError, match="not wanted"):
        lent[0].verified(2)
    assert state.done == ["expect"]


class Alone(Listening):
    """A peer of which nobody else is left."""

    agreed = None

    def __init__(self) -> None:
        super().__init__()
        self.served: list[GlobalState] = []

    def serve_state(self, state: GlobalState) -> None:
        self.served.append(state)

    def fetch_state(self, ref: StateRef, state: Receiver) -> Future[None]:
        raise StateError("nobody has it")

    def wait(self, future: Future[None], timeout: float) -> None:
        return future.result(timeout)


@pytest.mark.parametrize("kind", [GlobalState, OwnState, PathState])
def test_what_this_process_held_before_is_taken_over_from_there(kind: type[GlobalState]) -> None:
    """All of it, also where of another cluster's nothing but the name would be."""

    def made(value: float) -> GlobalState:
        state = kind([Entry("w", "float32", (3,))], [("policy", "any")])
        state.tentative["w"].fill_(value)
        state.seal({"round": 4})
        state.commit(0)
        return state

    peer = Alone()
    mesh = TrainingMesh(peer, None)  # type: ignore[arg-type]
    first, second, third = made(1.0), made(0.0), made(0.0)
    mesh.serve_state(first)
    first.confirm(5)
    mesh.serve_state(second)  # it ends before it has come to anything
    mesh.serve_state(third)
    assert peer.served[-1].held() == (5, first.digest)
    receiver = Name(third) if isinstance(third, PathState) else third
    mesh.fetch_state(StateRef(5, first.digest, ()), receiver, lambda: None)
    assert (third.version, third.committed["w"].tolist()) == (5, [1.0] * 3)
    assert {state.predecessor for state in (first, second, third)} == {None}
    with pytest.raises(StateError, match="nobody has it"):
        mesh.fetch_state(StateRef(6, b"another", ()), receiver, lambda: None)


def test_who_waits_for_a_state_that_nobody_gives_says_so_once_for_each_version() -> None:
    """Regression: all but the coordinator of a mesh that had lost its state waited without a word."""
    agreed = [StateRef(2, b"", ())]
    warnings: list[str] = []

    class Lost(Listening):
        config = SimpleNamespace(global_timeouts=SimpleNamespace(connect=0.0))

        @property
        def agreed(self) -> StateRef:
            return agreed[0]

        def clock(self) -> float:
            return 0.0

        def event(self, kind: str, **fields: str) -> None:
            if kind == "warning":
                warnings.append(fields["text"])

    mesh = TrainingMesh(Lost(), None)  # type: ignore[arg-type]
    for _ in range(2):
        mesh.missing_state(StateRef(2, b"", ()), "oslo has none", lambda: None)
    assert warnings == ["waits to be given version 2 of the state, which nobody does: oslo has none"]
    agreed[0] = StateRef(3, b"", ())
    mesh.missing_state(StateRef(2, b"", ()), "it has a successor", lambda: None)
    assert len(warnings) == 1
