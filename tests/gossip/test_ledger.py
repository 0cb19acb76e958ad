from __future__ import annotations

import msgspec
import pytest

from ictp2p.errors import LocalProtocolError
from ictp2p.gossip.health import LocalHealth
from ictp2p.gossip.ledger import Ledger
from ictp2p.gossip.messages import (
    MAX_PAYLOAD,
    Dead,
    Delta,
    Digest,
    Entry,
    Gossip,
    MemberJoined,
    MemberSuspected,
    Record,
    Sight,
    Status,
    Suspect,
)
from ictp2p.gossip.profile import SwimProfile
from ictp2p.machine import Send


def ledger(me: str = "a") -> tuple[Ledger, list[Record]]:
    """A ledger that takes any record signed "ok", and the list of what it had judged."""
    judged: list[Record] = []

    def verify(record: Record) -> bool:
        judged.append(record)
        return record.signature == b"ok"

    def seal(record: Record) -> Record:
        return msgspec.structs.replace(record, key=b"k", signature=b"ok")

    return Ledger(me, SwimProfile.lan(), LocalHealth(8), seal, verify), judged


def record(member: str, incarnation: int = 1, sequence: int = 0, payload: bytes = b"") -> Record:
    return Record(member, incarnation, sequence, payload, b"k", b"ok")


def test_signature_of_what_is_no_news_is_not_judged() -> None:
    book, judged = ledger()
    book.begin(b"", 1, 0.0)
    assert book.learn(record("b", 2), 0.0) == [MemberJoined("b", record("b", 2))]
    for stale in (record("b", 2), record("b", 1, 7), record("a", 1, 0)):
        assert book.learn(stale, 0.0) == []
    assert judged == [record("b", 2)]


def test_news_is_repeated_a_bounded_number_of_times() -> None:
    book, _ = ledger()
    book.begin(b"", 1, 0.0)
    book.learn(record("b"), 0.0)
    rounds = 0
    while book.news():
        rounds += 1
    assert rounds == 4
    assert book.news(to="b") == ()
    book.suspect("b", 1, "a", 1.0)
    while book.queue:
        book.news()
    assert book.news(to="b") == (Suspect("b", 1, "a"),)
    assert book.news(to="c") == ()
    book.bury("b", 1, "a", 1.0)
    assert book.news(to="b")[0] == Dead("b", 1, "a")


def test_first_news_after_a_rest_dates_the_queue() -> None:
    book, _ = ledger()
    book.begin(b"", 1, 5.0)
    assert book.news_since == 5.0
    book.learn(record("b"), 6.0)
    assert book.news_since == 5.0
    while book.queue:
        book.news()
    book.learn(record("b", 2), 9.0)
    assert book.news_since == 9.0


def test_wanted_records_come_with_verdicts_and_in_batches() -> None:
    book, _ = ledger()
    book.begin(b"", 1, 0.0)
    names = [f"m{i:02}" for i in range(10)]
    for name in names:
        book.learn(record(name, payload=b"x" * MAX_PAYLOAD), 0.0)
    book.suspect("m05", 1, "a", 1.0)
    sent = book.give("z", [*names, "stranger"])
    deltas = [e.message for e in sent if isinstance(e, Send) and isinstance(e.message, Delta)]
    assert len(deltas) == 3
    assert [r.member for d in deltas for r in d.records] == names
    assert [d.verdicts for d in deltas] == [(), (), (Entry("m05", 1, 0, Status.SUSPECT),)]
    assert book.give("z", []) == book.give("z", ["stranger"]) == []


def test_digests_bring_two_ledgers_together_in_three_messages() -> None:
    (one, _), (two, _) = ledger("a"), ledger("b")
    one.begin(b"", 1, 0.0)
    two.begin(b"", 1, 0.0)
    one.learn(record("x", 2), 0.0)
    two.learn(record("x", 1), 0.0)
    two.learn(record("y", 1), 0.0)
    two.suspect("y", 1, "b", 0.0)
    answer = two.answer(one.digest(), "a", 1.0)
    assert [type(e) for e in answer] == [Send]
    delta = answer[0].message  # type: ignore[union-attr]
    assert isinstance(delta, Delta)
    assert [r.member for r in delta.records] == ["b", "y"]
    assert delta.wanted == ("a", "x")
    effects = one.hear(delta.records, "b", 2.0) + one.merge(delta.verdicts, "b", 2.0)
    assert MemberSuspected("y") in effects
    two.hear(one.give("b", delta.wanted)[0].message.records, "a", 3.0)  # type: ignore[union-attr]
    assert one.digest() == two.digest()
    assert one.answer(two.digest(), "b", 4.0) == []


def test_accusations_of_ourselves_while_silent_are_nothing() -> None:
    book, _ = ledger()
    assert book.hear((Suspect("a", 1, "b"),), "b", 0.0) == []
    assert book.learn(record("a", 5), 0.0) == []


def test_refutation_answers_the_accuser() -> None:
    book, _ = ledger()
    book.begin(b"p", 1, 0.0)
    assert book.hear((Dead("a", 1, "z"),), "b", 1.0) == [Send("b", Gossip((record("a", 2, 0, b"p"),)))]
    assert book.merge([Entry("a", 2, 0, Status.SUSPECT)], None, 2.0) == []
    assert book.own == record("a", 3, 0, b"p")
    assert [type(e.message) for e in book.hear((Dead("a", 9, "z"),), "b", 3.0)] == [Digest]  # type: ignore[union-attr]


def test_mirrored_goodbye_is_one_whatever_is_said_of_it() -> None:
    book, _ = ledger()
    book.mirror(Sight(record("b"), Status.LEFT), 0.0)
    assert book.table.members["b"].status is Status.DEAD, "without the member's own word it has not left"
    book.mirror(Sight(record("c", 1, 2**63 - 1), Status.ALIVE), 0.0)
    assert book.table.members["c"].status is Status.LEFT


@pytest.mark.parametrize(("payload", "incarnation"), [(b"x" * (MAX_PAYLOAD + 1), 1), (b"", -1), (b"", 2**62 + 1)])
def test_what_the_wire_cannot_carry_is_our_own_error(payload: bytes, incarnation: int) -> None:
    book, _ = ledger()
    with pytest.raises(LocalProtocolError, match="record of a"):
        book.declare(incarnation, 0, payload, 0.0)
