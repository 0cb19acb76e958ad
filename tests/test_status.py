"""What an observer makes of what it is told."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ictp2p.core.cards import PeerCard
from ictp2p.errors import ConfigError, RemoteProtocolError
from ictp2p.gossip.messages import Record, Status
from ictp2p.gossip.table import Member
from ictp2p.routing.algebra import Link
from ictp2p.rows import ClusterRow, LinkRow, MemberRow, RouteRow, StatusDocument
from ictp2p.runtime.reporting import clusters_of, members_of, routes_of, status_of
from ictp2p.status import _read, fetch_status
from ictp2p.types import ClusterId, PeerId
from tests.core.control_planes import World, mesh
from tests.routing.one_router import advert
from tests.routing.one_router import router as routed


class Unsearched(dict[PeerId, PeerCard]):
    """Cards that are looked up, and never gone through."""

    def __iter__(self) -> Any:
        raise AssertionError("to look at all cards for each member is quadratic")

    items = values = keys = __iter__  # type: ignore[assignment]


@given(
    members=st.sets(st.integers(0, 9).map(str)),
    known=st.sets(st.integers(0, 9).map(str)),
)
def test_each_member_is_shown_with_its_card_if_there_is_one_and_looked_up_once(
    members: set[str], known: set[str]
) -> None:
    """Regression: of a thousand workers the status went through a thousand cards for each."""
    cards = Unsearched({PeerId(p): PeerCard(PeerId(p), ClusterId("a"), f"192.0.2.{p}:1", bytes(32)) for p in known})
    told = {name: Member(Record(name, 0, 0, b""), Status.ALIVE, 0.0) for name in members}
    core: Any = SimpleNamespace(
        m=SimpleNamespace(members=SimpleNamespace(members=told)), directory=SimpleNamespace(peers=cards), leader=None
    )
    rows = members_of(core, 0.0)
    assert [row["peer"] for row in rows] == sorted(members)
    assert all(row["address"] == (f"192.0.2.{row['peer']}:1" if row["peer"] in known else "") for row in rows)


def test_how_long_a_cluster_has_been_dead_is_shown() -> None:
    """Who looks after a night must see whether that was now or in the evening."""
    seen = {
        "gone": Member(Record("gone", 0, 0, b""), Status.DEAD, 40.0),
        "here": Member(Record("here", 0, 0, b""), Status.ALIVE, 99.7),
    }
    core: Any = SimpleNamespace(
        m=SimpleNamespace(mesh=SimpleNamespace(members=seen)),
        directory=SimpleNamespace(clusters={}),
        own_view=lambda: SimpleNamespace(cluster="me"),
    )
    shown = {row["cluster"]: (row["status"], row["status_for"]) for row in clusters_of(core, 100.2)}
    assert shown == {"gone": ("dead", 60), "here": ("alive", 0), "me": ("alive", None)}


def test_a_route_has_the_bandwidth_that_was_measured_and_no_other() -> None:
    """Regression: over links that nobody had measured it had the one which routing assumes."""
    router = routed("m", "n")
    router.link_changed("n", Link(0.02, 600e3), 0.0)
    for neighbour, destination in (("m", "far"), ("n", "near")):
        router.receive(neighbour, advert(destination, 5, classes=(0, 2)), 0.0)
    core: Any = SimpleNamespace(m=SimpleNamespace(routes=router), card=SimpleNamespace(cluster="me"))
    shown = {(row["destination"], row["traffic_class"]): row["bandwidth"] for row in routes_of(core)}
    assert shown == {("far", 0): None, ("near", 0): None, ("near", 1): 500e3}


def test_a_cluster_that_has_said_nothing_yet_has_a_row_of_all_keys() -> None:
    """Regression: it lacked two, so that a program that read `training` of each failed while one joined."""
    world = World()
    host = mesh(world, "a", "b")["a"][0]
    told = host.core.directory.clusters.pop(ClusterId("b"))
    rows = clusters_of(host.core, 0.0)
    assert [row["training"] for row in rows] == [False, None]
    assert [row["workers"] for row in rows] == [len(told.workers), 0]
    assert all(row.keys() == ClusterRow.__annotations__.keys() for row in rows)


def test_a_status_has_all_keys_whether_a_decision_is_known_or_not() -> None:
    """Regression: of a peer that had just begun it lacked `state_version`, and six more."""
    host = mesh(World(), "a", "b")["a"][0]
    known = status_of(host.core, "INIT", {}, 0.0)
    host.core.m.rounds.agreement._acceptor.tip = None
    unknown = status_of(host.core, "INIT", {}, 0.0)
    assert known.keys() == unknown.keys() == get_type_hints(StatusDocument).keys()
    assert known["slot"] is not None
    assert (unknown["slot"], unknown["state_version"], unknown["voters"]) == (None, None, [])


def test_the_page_lists_every_key_of_what_a_peer_sees() -> None:
    page = (Path(__file__).parent.parent / "docs/reference.md").read_text()
    section = page.split("## What a peer sees")[1].split("\n## ")[0]
    for name, row in (("members", MemberRow), ("clusters", ClusterRow), ("links", LinkRow), ("routes", RouteRow)):
        (keys,) = re.findall(rf"^\| `{name}` \|.*\| ([^|]*) \|$", section, re.MULTILINE)
        assert re.findall(r"`(\w+)`", keys) == list(row.__annotations__)
    table = section.split("| keys | meaning |")[1].split("\n\n")[0]
    listed = [key for line in table.splitlines() for key in re.findall(r"`(\w+)`", line.split("|")[1] if line else "")]
    assert {*listed, "members", "clusters", "links", "routes"} == get_type_hints(StatusDocument).keys()


@pytest.mark.parametrize("address", ["127.0.0.1:0", "0.0.0.0:7450"])
async def test_an_address_that_is_only_one_to_listen_on_is_not_dialed(address: str) -> None:
    """Regression: it was, to learn that nobody was there."""
    with pytest.raises(ConfigError, match=f"address '{address}' is not valid"):
        await fetch_status(address, "0123456789abcdef", 1.0)


@pytest.mark.parametrize("document", [b"", b"\xff", b"[" * 100_000, b'{"a":' * 100_000, b"1" * 10_000, b"[]", b"1"])
def test_what_is_no_status_is_the_other_sides_error(document: bytes) -> None:
    """Regression: a document that was nested too deeply ended the command with a traceback."""
    with pytest.raises(RemoteProtocolError):
        _read(document)
