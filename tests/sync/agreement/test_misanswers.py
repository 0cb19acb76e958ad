"""What no voter that keeps to the protocol says: it is refused, and reaches neither the disk nor the next bid."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ictp2p.errors import RemoteProtocolError
from ictp2p.machine import Effects, Message, Persist, Send
from ictp2p.sync.agreement.acceptor import Acceptor
from ictp2p.sync.messages import (
    HIGHEST,
    NO_BALLOT,
    Accept,
    Accepted,
    Ballot,
    Prepare,
    Promise,
    Refused,
    SyncMessage,
)
from ictp2p.sync.validity import follows
from ictp2p.types import PeerId
from tests.sync.agreement.agreeing import A, B, C, D, E, Net, change, net


def bidding() -> tuple[Net, Ballot]:
    """B, who is not the author, has asked A and C for a promise in slot 2."""
    n = net(A, B, C)
    n.propose(B, change(n.tip(B), B))
    ballot = next(m for _, _, m in n.wire if isinstance(m, Prepare)).ballot
    assert ballot == Ballot(2, B)
    return n, ballot


@pytest.mark.parametrize("restarted", [False, True])
def test_another_value_under_the_ballot_of_what_was_accepted_is_refused_and_not_accepted(restarted: bool) -> None:
    n = net(A, B, C, D, E)  # of three, two would have decided it
    ballot, value = Ballot(1, A), change(n.tip(B), A)
    n.do(B, n.machines[B].receive(A, Accept(2, ballot, value), 0.0))
    if restarted:
        n.restart(B)
    with pytest.raises(RemoteProtocolError, match="another value"):
        n.machines[B].receive(A, Accept(2, ballot, change(n.tip(B), A, A, B)), 0.0)
    n.wire.clear()
    n.do(B, n.machines[B].receive(C, Prepare(2, n.tip(B).lineage, Ballot(2, C)), 0.0))
    assert [m for _, _, m in n.wire] == [Promise(2, Ballot(2, C), ballot, value)]


TIP = net(A, B, C).tip(B)
VALUES = st.sampled_from(
    [change(TIP, A), replace(change(TIP, C), round=7), replace(change(TIP, A), lineage=b"another!")]
)
NUMBERS = st.sampled_from([0, 1, 2, 3, HIGHEST - 1, HIGHEST, HIGHEST + 1, 2**63 - 1])
BALLOTS = st.just(Ballot(2, B)) | st.just(NO_BALLOT) | st.builds(Ballot, NUMBERS, st.sampled_from([A, B, C]))
SLOTS = st.sampled_from([2, 2, 2, 1, 3])
MESSAGES: st.SearchStrategy[Message] = st.one_of(
    st.builds(Promise, SLOTS, st.just(Ballot(2, B)), BALLOTS, st.none() | VALUES),
    st.builds(Refused, st.just(2), st.just(Ballot(2, B)), st.builds(Ballot, NUMBERS, st.just(C))),
    st.builds(Refused, SLOTS, BALLOTS, BALLOTS),
    st.builds(Accepted, SLOTS, BALLOTS),
    st.builds(Prepare, SLOTS, st.just(TIP.lineage), BALLOTS),
    st.builds(Accept, SLOTS, BALLOTS, VALUES),
)


def sound(effects: Effects) -> None:
    """The disk can be read and holds what may come there, and others can read what they are sent."""
    for effect in effects:
        if isinstance(effect, Persist):
            stored = Acceptor(B, effect.value)
            assert stored.tip is not None
            assert stored.value is None or follows(stored.tip, stored.value) is None
        elif isinstance(effect, Send):
            assert msgspec.msgpack.decode(msgspec.msgpack.encode(effect.message), type=SyncMessage) == effect.message


@given(said=st.lists(st.tuples(st.sampled_from([A, C]), MESSAGES), max_size=6))
def test_whatever_voters_say_the_disk_can_be_read(said: list[tuple[PeerId, Message]]) -> None:
    """Regression: a refusal with the largest number made the next process unable to start."""
    n, _ = bidding()
    machine = n.machines[B]
    for sender, message in said:
        before = machine._acceptor.persist() if machine.slot == 1 else None
        try:
            sound(machine.receive(sender, message, n.now))
        except RemoteProtocolError:
            assert before is None or machine._acceptor.persist() == before
        n.now += 1.0
        sound(machine.handle_timeout(n.now))


@pytest.mark.parametrize(
    ("answer", "wrong"),
    [
        (Promise(2, Ballot(2, B), Ballot(1, A), None), "no value"),
        (Promise(2, Ballot(2, B), NO_BALLOT, change(TIP, A)), "a value, accepted under"),
        (Promise(2, Ballot(2, B), Ballot(3, A), change(TIP, A)), "before"),
        (Promise(2, Ballot(2, B), Ballot(1, A), replace(change(TIP, A), round=7)), "round 7"),
        (Refused(2, Ballot(2, B), Ballot(2, A)), "in favour of"),
        (Refused(2, Ballot(2, B), Ballot(HIGHEST + 1, C)), "in favour of"),
        (Prepare(2, TIP.lineage, Ballot(HIGHEST + 1, C)), "may not prepare"),
        (Accept(2, Ballot(HIGHEST + 1, C), change(TIP, C)), "not its own"),
    ],
)
def test_what_no_voter_says_is_named(answer: Message, wrong: str) -> None:
    n, _ = bidding()
    with pytest.raises(RemoteProtocolError, match=wrong):
        n.machines[B].receive(C, answer, n.now)


def test_the_highest_bid_can_be_outbid_and_kept() -> None:
    n, ballot = bidding()
    n.wire.clear()
    n.do(B, n.machines[B].receive(C, Refused(2, ballot, Ballot(HIGHEST, C)), n.now))
    assert {m.ballot for _, _, m in n.wire if isinstance(m, Prepare)} == {Ballot(HIGHEST + 1, B)}
    assert Acceptor(B, n.disks[B]).promised == Ballot(HIGHEST + 1, B)
