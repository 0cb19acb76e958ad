"""A decision fits into a frame, whoever is READY with whatever to say, and all have their turns in it."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ictp2p.core.machines import CODECS
from ictp2p.core.packets import MAX_HOPS, Channel, Packet, encode_packet
from ictp2p.machine import Message
from ictp2p.sync.credits import advanced
from ictp2p.sync.messages import HIGHEST, Accept, Ballot, Decision, Promise, Ready
from ictp2p.sync.profile import RoundProfile
from ictp2p.sync.rounds.opening import Opener, PlanAnswer, PlanQuestion, Standing
from ictp2p.sync.rounds.room import fitting
from ictp2p.sync.validity import fault
from ictp2p.sync.values import (
    MAX_NOTE,
    MAX_PARTICIPANTS,
    MAX_PLAN,
    MAX_VALUE,
    MAX_VOTERS,
    Close,
    Open,
    Participant,
    Restore,
    Spec,
    StateRef,
    Value,
    Voters,
    encoded_size,
)
from ictp2p.types import ClusterId, PeerId
from ictp2p.wire import FrameKind, frame
from tests.sync.rounds.rounds_mesh import A0, mesh

MOST = 2**63 - 1
PEERS = tuple(PeerId(f"{number:032x}") for number in range(MAX_PARTICIPANTS))
VOTING = PEERS[:MAX_VOTERS]
SPEC = Spec("sync", "n" * 256, "d" * 32, MOST, "avg", "c" * 64, bytes(4096), 0.5, 6.0)


def names(count: int, letter: str = "c") -> tuple[ClusterId, ...]:
    return tuple(ClusterId(letter * 59 + f"{number:04}") for number in range(count))


def state(letter: str = "c") -> StateRef:
    return StateRef(MOST, bytes(64), PEERS, tuple((name, MOST) for name in names(MAX_PARTICIPANTS, letter)))


def standing(count: int, note: int) -> Standing:
    return {
        name: (leader, Ready(0, 2, name, MOST, 1.0, SPEC, None, bytes(note)))
        for name, leader in zip(names(count), PEERS, strict=False)
    }


def opened(tip: Value, ready: Standing, plan: int = MAX_PLAN) -> Open | str:
    def planner(request: PlanQuestion) -> PlanAnswer:
        return PlanAnswer(bytes(plan), "ä" * 2000)

    opener = Opener(VOTING[0], RoundProfile.local(), planner, lambda plan, parts: None)
    return opener.open(tip, VOTING, ready, (), "ö" * 2000)


def longest(message: Message) -> bytes:
    """A frame with it, from and to whoever has the longest names."""
    packet = Packet(PEERS[0], names(1)[0], PEERS[1], MAX_HOPS, Channel.ROUNDS, CODECS[Channel.ROUNDS].encode(message))
    return frame(FrameKind.MESSAGE, encode_packet(packet))


TIP = Voters(b"lineage!", VOTING, state(), VOTING[0], 2, 1)


@pytest.mark.parametrize("note", [0, 100, MAX_NOTE])
@pytest.mark.parametrize("count", [1, 500, 634, 700, MAX_PARTICIPANTS])
def test_whoever_is_ready_with_whatever_to_say_a_decision_can_be_sent(count: int, note: int) -> None:
    """Regression: from some six hundred clusters on it was longer than a frame, which nobody could be sent."""
    value = opened(TIP, standing(count, note))
    assert isinstance(value, Open)
    assert fault(value) is None
    ballot = Ballot(HIGHEST, PEERS[0])
    for message in (Accept(MOST, ballot, value), Decision(MOST, value, MOST), Promise(MOST, ballot, ballot, value)):
        longest(message)
    assert len(value.participants) >= min(count, 500)
    assert all(len(part.note) == note for part in value.participants), "with all that they have to say"


def test_it_is_said_how_many_there_was_no_room_for() -> None:
    opener = Opener(VOTING[0], RoundProfile.local(), lambda request: PlanAnswer(b"", "ring"), lambda plan, parts: None)
    value = opener.open(TIP, VOTING, standing(900, MAX_NOTE), ())
    assert isinstance(value, Open)
    left = 900 - len(value.participants)
    assert value.reason == f"ring, without {left} clusters more than fit into one decision"


def test_more_than_a_round_may_have_are_no_reason_to_have_none() -> None:
    parts = tuple(Participant(ClusterId(f"c{number}"), PEERS[0], 1, 1.0) for number in range(MAX_PARTICIPANTS + 1))
    bare = Open(b"lineage!", VOTING, StateRef(1, b"digest", ()), VOTING[0], 1, 1, SPEC, (), b"", "", 1.0)
    assert len(fitting(bare, parts)) == MAX_PARTICIPANTS


def test_who_was_left_out_goes_first_in_the_next_round() -> None:
    tip: Value = Voters(b"lineage!", VOTING, StateRef(1, b"digest", VOTING), VOTING[0], 1, 1)
    ready = standing(1000, MAX_NOTE)
    left_out = [set(ready)]
    for _ in range(6):
        value = opened(tip, ready)
        assert isinstance(value, Open)
        taken = {part.cluster for part in value.participants}
        assert [part.cluster for part in value.participants] == sorted(taken), "in their order as ever"
        assert not left_out[-1] - taken or taken < left_out[-1]
        left_out.append(set(ready) - taken)
        tip = Close(tip.lineage, VOTING, advanced(value, b"d", VOTING), VOTING[0], 1, 1, True, b"d", "", VOTING)


@given(st.integers(1, 40), st.integers(0, 4096), st.integers(1, 5))
def test_those_that_fit_are_those_whose_turn_it_is(count: int, room: int, newest: int) -> None:
    parts = tuple(
        Participant(ClusterId(f"c{number:02}"), PEERS[number], 1, 1.0, bytes(37 * number % 200))
        for number in range(count)
    )
    credits = tuple((part.cluster, number % newest + 1) for number, part in enumerate(parts) if number % 3)
    bare = Open(b"lineage!", VOTING, StateRef(9, b"digest", (), credits), VOTING[0], 1, 1, SPEC, (), b"", "", 1.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ictp2p.sync.rounds.room.MAX_VALUE", encoded_size(bare) + MAX_PLAN + 5000 + room)
        chosen = fitting(bare, parts)
    held = {part.cluster: dict(credits).get(part.cluster, 0) for part in parts}
    inside = {part.cluster for part in chosen}
    assert chosen == tuple(part for part in parts if part.cluster in inside)
    assert all(held[a] <= held[b] for a in inside for b in held.keys() - inside)
    assert sum(map(encoded_size, chosen)) <= room + 5000


@pytest.mark.parametrize("letter", ["c", "\U0001f600"])
def test_no_other_value_is_too_long_whatever_it_holds(letter: str) -> None:
    """The wire counts the characters of a name, which may be four bytes each."""
    ref, reason = state(letter), "\U0001f600" * 1024
    head = (bytes(8), VOTING, ref, VOTING[0], MOST, MOST)
    camps = tuple((name,) for name in names(MAX_PARTICIPANTS, letter))
    values = (Voters(*head), Close(*head, False, bytes(64), reason, PEERS, camps), Restore(*head, MOST, reason))
    for value in values:
        assert encoded_size(value) <= MAX_VALUE
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(value), type=Value) == value


def test_a_mesh_of_more_than_fit_goes_on_and_has_the_contributions_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ictp2p.sync.rounds.room.MAX_PARTICIPANTS", 2)
    m = mesh(A=1, B=1, C=1)
    for _ in range(8):
        m.one_round()
    asked = [message.value for _, _, message in m.sent if isinstance(message, Accept)]
    taken = {value.round: {part.cluster for part in value.participants} for value in asked if isinstance(value, Open)}
    assert m.value(A0).state.version == 1 + len(taken) == 9
    assert all(len(each) == 2 for each in taken.values())
    assert all(taken[number] | taken[number + 1] == {"A", "B", "C"} for number in range(1, 8))
    assert len({frozenset(each) for each in taken.values()}) == 3, "nobody has a place for good"


def test_an_attempt_that_is_too_long_is_none() -> None:
    value = opened(TIP, standing(500, MAX_NOTE))
    assert isinstance(value, Open)
    many = standing(MAX_PARTICIPANTS, MAX_NOTE)
    parts = tuple(Participant(name, leader, 1, 1.0, ready.note) for name, (leader, ready) in many.items())
    assert "can be sent" in (fault(replace(value, participants=parts)) or "")
