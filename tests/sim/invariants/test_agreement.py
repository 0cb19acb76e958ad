"""Each rule of agreement is seen to be broken."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from ictp2p.sync.agreement.acceptor import Acceptor
from ictp2p.sync.agreement.chain import Decided
from ictp2p.sync.messages import Ballot
from ictp2p.sync.values import Value
from ictp2p.types import PeerId
from sim import Breach, World

Broken = Callable[[], list[str]]


def _stored(world: World, host: str, number: int, value: Value | None = None) -> bytes:
    """What an acceptor would write that promises ballot `number` after the newest decision, and accepts a value."""
    core = world.hosts[host].core
    assert core is not None
    acceptor = Acceptor(core.card.peer, None)
    acceptor.learn(*core.m.rounds.tip)
    ballot = Ballot(number, PeerId("b" * 32))
    persist = acceptor.promise(ballot) if value is None else acceptor.accept(ballot, value)
    return persist.value


def _next(world: World, host: str, **changes: object) -> Value:
    core = world.hosts[host].core
    assert core is not None
    return msgspec.structs.replace(core.m.rounds.tip[1], **changes)


def test_a1_two_values_that_peers_learn_for_one_slot(world: World, broken: Broken) -> None:
    slot, value = world.hosts["a/0"].core.m.rounds.tip
    world.auditor.notice(world.hosts["a/0"], Decided(slot, msgspec.structs.replace(value, author=PeerId("f" * 32))))
    assert "A1" in broken()


def test_a1_two_values_that_quorums_accept_before_anybody_learns(world: World, broken: Broken) -> None:
    peers = {name: world.hosts[name].id for name in world.hosts}
    for number, author in ((50, "a/0"), (51, "b/0")):
        value = _next(world, "a/0", author=peers[author])
        for name, peer in peers.items():
            world.auditor.agreement.saved(peer, _stored(world, name, number, value))
        if author == "a/0":
            assert broken() == []
    assert set(broken()) == {"A1"}


def test_a1_two_values_under_one_ballot(world: World, broken: Broken) -> None:
    core = world.hosts["a/0"].core
    slot, tip = core.m.rounds.tip
    for peer, author in ((world.hosts["a/0"].id, "e" * 32), (world.hosts["b/0"].id, "f" * 32)):
        acceptor = Acceptor(peer, None)
        acceptor.learn(slot, tip)
        value = msgspec.structs.replace(tip, author=PeerId(author))
        world.auditor.agreement.saved(peer, acceptor.accept(Ballot(60, core.card.peer), value).value)
    assert "A1" in broken()


def test_a6_a_decision_that_cannot_follow_and_that_nobody_accepted(world: World, broken: Broken) -> None:
    slot, value = world.auditor.agreement.newest
    forged = msgspec.structs.replace(value, round=value.round + 5)
    world.auditor.notice(world.hosts["a/0"], Decided(slot + 1, forged))
    texts = [finding.text for finding in world.auditor.findings]
    assert broken() == ["A6", "A6"]
    assert "cannot follow" in texts[0]
    assert "no quorum has accepted it" in texts[1]


def test_a6_a_minority_that_decides(world: World, broken: Broken) -> None:
    slot, _ = world.hosts["a/0"].core.m.rounds.tip
    value = _next(world, "a/0", author=world.hosts["c/0"].id)
    world.auditor.agreement.saved(world.hosts["c/0"].id, _stored(world, "c/0", 50, value))
    world.auditor.notice(world.hosts["c/0"], Decided(slot + 1, value))
    assert "A6" in broken()


def test_a6_acceptances_that_are_not_on_disk(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutation: acceptors accept in memory only."""
    real = Acceptor.accept

    def forgetful(self: Acceptor, ballot: object, value: object) -> object:
        persist = real(self, ballot, value)  # type: ignore[arg-type]
        return None if persist is None else type(persist)("elsewhere", persist.value)

    monkeypatch.setattr(Acceptor, "accept", forgetful)
    with pytest.raises(Breach, match="A6"):
        world.run_for(20)


def test_a9_a_promise_that_is_taken_back(world: World, broken: Broken) -> None:
    peer = world.hosts["a/0"].id
    world.auditor.agreement.saved(peer, _stored(world, "a/0", 50))
    assert broken() == []
    world.auditor.agreement.saved(peer, _stored(world, "a/0", 49))
    assert broken() == ["A9"]
