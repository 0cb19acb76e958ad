"""What is told of notices: names and fields that programs outside rely on."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from ictp2p.core import commands
from ictp2p.core.cards import PeerCard
from ictp2p.core.directory import Directory
from ictp2p.gossip.election import LeaderChanged
from ictp2p.machine import Notice
from ictp2p.routing.babel import RouteChanged
from ictp2p.runtime.events import tell
from ictp2p.sync.agreement.chain import Decided, ForeignChain
from ictp2p.sync.agreement.quorum_watch import QuorumLost, QuorumRegained
from ictp2p.sync.rosters.roster import Roster, RosterChanged
from ictp2p.sync.rounds.notices import ClusterAbsent
from ictp2p.sync.values import Close, Open, Participant, Spec, StateRef
from ictp2p.telemetry import Telemetry
from ictp2p.types import ClusterId, PeerId

ME, OTHER = PeerId("a" * 32), PeerId("b" * 32)
WITHOUT = Open(
    b"lineage!",
    (ME,),
    StateRef(0, b"", ()),
    ME,
    7,
    1,
    Spec("reduce", "all_reduce", "float32", 3, "avg", "none"),
    (Participant(ClusterId("far"), OTHER, 1, 1.0), Participant(ClusterId("here"), ME, 1, 1.0)),
    b"plan",
    "star",
    30.0,
    "cluster there brings elements 4",
)
ROSTER = Roster(1, 2, (ME,), "127.0.0.1:7000", 0)
TOLD: list[tuple[Notice, str, dict[str, Any]]] = [
    (LeaderChanged(ME, 3), "leader", {"cluster": "here", "leader": ME, "term": 3}),
    (
        commands.MemberChanged("mesh", "there", "dead"),
        "member",
        {"scope": "mesh", "member": "there", "status": "dead"},
    ),
    (commands.Violated(ME, ME, "lied"), "warning", {"text": f"{ME} broke the protocol: lied"}),
    (
        commands.Violated(ME, OTHER, "lied"),
        "warning",
        {
            "text": f"a packet in the name of {OTHER}, passed on by {ME}, breaks the protocol "
            "(whose it is, is not proven): lied"
        },
    ),
    (
        commands.MateUnmet(OTHER, 30.0),
        "warning",
        {
            "text": f"another worker, {OTHER}, is there, as others say, but in 30 s neither reached the other: each "
            "leads here by itself, and the mesh hears one of the two. Unless it has died since, look at advertise and "
            "listen of both: one must be able to dial the other there"
        },
    ),
    (
        commands.Crowded(700, 550),
        "warning",
        {"text": "here has 700 workers, of which the mesh knows 550: the others have no vote; split the cluster"},
    ),
    (RosterChanged(ROSTER), "roster", {"members": [ME], "generation": list(ROSTER.generation)}),
    (
        RouteChanged("there", 2, "between", 99),
        "route",
        {"destination": "there", "next_hop": "between", "traffic_class": 2},
    ),
    (QuorumRegained(), "quorum_regained", {}),
    (
        ForeignChain(OTHER, b"theirs", b"ours", False, True),
        "warning",
        {
            "text": f"{OTHER} is of another mesh, which was founded apart: the two never become "
            "one; start the peers of one anew, with empty data folders and join"
        },
    ),
    (
        Decided(9, WITHOUT),
        "warning",
        {"text": "round 7 goes on with far, here only: cluster there brings elements 4", "round": 7},
    ),
]


def happened(notice: Notice, *others: PeerCard) -> list[tuple[str, dict[str, Any]]]:
    telemetry, directory = Telemetry(lambda: 0.0), Directory(PeerCard(ME, ClusterId("here"), "", bytes(32)))
    for card in others:
        directory.learn_peer(card)
    tell(telemetry, directory, notice)
    return [(event.kind, dict(event.fields)) for event in telemetry.events()]


@pytest.mark.parametrize(("notice", "kind", "fields"), TOLD, ids=lambda value: value if isinstance(value, str) else "")
def test_a_notice_is_one_event_with_the_fields_that_programs_read(
    notice: Notice, kind: str, fields: dict[str, Any]
) -> None:
    assert happened(notice) == [(kind, fields)]


def test_a_cluster_that_comes_to_no_round_is_named_so_that_people_find_it() -> None:
    absent = ClusterAbsent(ClusterId("far"), OTHER, 3, 31.25)
    (event, (kind, fields)) = happened(absent, PeerCard(OTHER, ClusterId("far"), "192.0.2.7:7450", bytes(32)))
    assert event == ("cluster_absent", {"cluster": "far", "rounds": 3, "seconds": 31.25})
    assert (kind, fields["cluster"]) == ("warning", "far")
    lives = f"{OTHER} of far at 192.0.2.7:7450 lives"
    assert fields["text"].startswith(
        f"cluster far was in none of the last 3 rounds, though {lives}: each waits for it."
    )


def test_whose_vote_is_missing_is_said_so_that_people_find_it() -> None:
    """Regression: it was told by its id alone, and of a worker of another cluster nothing showed whose that is."""
    hidden, unknown = PeerId("c" * 32), PeerId("d" * 32)
    cards = (
        PeerCard(OTHER, ClusterId("far"), "192.0.2.7:7450", bytes(32)),
        PeerCard(hidden, ClusterId("near"), "", bytes(32), inside="10.0.0.5:7450"),
    )
    missing = (OTHER, hidden, unknown)
    (lost, warning) = happened(QuorumLost((ME, *missing), missing), *cards)
    assert lost == ("quorum_lost", {"voters": [ME, *missing], "missing": [*missing]})
    names = f"{OTHER} of far at 192.0.2.7:7450, {hidden} of near at 10.0.0.5:7450, {unknown}"
    assert warning == ("warning", {"text": f"no quorum: of 4 voters are missing {names}"})


def test_a_quorum_that_only_answers_too_late_is_not_said_to_miss_anybody() -> None:
    """Regression: it was said that of three voters are missing, and then nobody."""
    lost, warning = happened(QuorumLost((ME, OTHER), ()))
    assert lost == ("quorum_lost", {"voters": [ME, OTHER], "missing": []})
    words = "no quorum: all 2 voters seem to be alive, but too few of them answer in time"
    assert warning == ("warning", {"text": words})


def test_a_round_that_is_for_all_or_of_others_is_no_warning() -> None:
    assert happened(Decided(9, structs.replace(WITHOUT, misfits=""))) == []
    assert happened(Decided(9, structs.replace(WITHOUT, participants=WITHOUT.participants[:1]))) == []


def test_results_that_differ_are_told_at_once_to_everybody() -> None:
    camps = ((ClusterId("a"), ClusterId("b")), (ClusterId("c"),))
    close = Close(b"lineage!", (ME,), StateRef(0, b"", ()), ME, 7, 1, False, b"", "digests differ: ...", (), camps)
    differ, warning = happened(Decided(9, close))
    assert differ == ("digests_differ", {"round": 7, "attempt": 1, "camps": [["a", "b"], ["c"]]})
    assert warning[0] == "warning"
    assert warning[1]["round"] == 7, "so that a log has it once in a while"
    assert warning[1]["text"].startswith("round 7 came to nothing: the results of c differ from that of a, b; look for")
    assert happened(Decided(9, structs.replace(close, camps=()))) == []


def test_what_is_between_two_parts_of_the_program_is_not_told() -> None:
    assert happened(commands.MeshLearned()) == []
