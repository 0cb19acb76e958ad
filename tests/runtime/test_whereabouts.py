"""Where others are told to dial a peer."""

from __future__ import annotations

from collections.abc import Container

import pytest

from ictp2p.config import Config
from ictp2p.runtime.whereabouts import Whereabouts
from ictp2p.types import Address

PORT = 7450


def told_after(where: Whereabouts, shown: list[str]) -> str:
    """What the others believe once connections have shown these addresses, one after the other."""
    believed = Address.parse(where.known) if where.known else None
    for host in shown:
        believed = where.shown(believed, host) or believed
    return str(believed) if believed else ""


def whereabouts(
    listening: str, advertise: str = "", gone: Container[str] = (), warned: list[str] | None = None
) -> Whereabouts:
    config = Config.local(cluster="a", token="a token for tests only", advertise=advertise)
    return Whereabouts(
        config, Address(listening, PORT), ([] if warned is None else warned).append, lambda host: host not in gone
    )


@pytest.mark.parametrize("listening", ["0.0.0.0", "::"])
@pytest.mark.parametrize(
    ("shown", "believed"),
    [
        ([], ""),
        (["127.0.0.1"], "127.0.0.1:7450"),
        (["127.0.0.1", "192.0.2.7"], "192.0.2.7:7450"),
        (["192.0.2.7", "127.0.0.1", "198.51.100.7"], "192.0.2.7:7450"),
    ],
)
def test_an_address_that_only_this_host_can_dial_is_believed_until_there_is_another(
    listening: str, shown: list[str], believed: str
) -> None:
    """Regression: who asked a founder for its status on its own host had it tell all others to dial 127.0.0.1."""
    assert told_after(whereabouts(listening), shown) == believed


def test_who_listens_everywhere_tells_an_address_of_either_family() -> None:
    assert told_after(whereabouts("::"), ["::1", "fe80::1", "2001:db8::7", "192.0.2.7"]) == "[2001:db8::7]:7450"


@pytest.mark.parametrize(
    ("shown", "believed", "warnings"),
    [
        (["2001:db8::7"], "", 1),
        (["2001:db8::7", "fe80::1", "2001:db8::8"], "", 1),
        (["2001:db8::7", "127.0.0.1"], "", 1),
        (["::1", "127.0.0.1"], "127.0.0.1:7450", 1),
        (["2001:db8::7", "192.0.2.7"], "192.0.2.7:7450", 1),
        (["192.0.2.7", "2001:db8::7"], "192.0.2.7:7450", 0),
    ],
)
def test_who_listens_for_ipv4_alone_tells_no_ipv6_address(shown: list[str], believed: str, warnings: int) -> None:
    """Regression: others dialed it, were refused, and suspected a healthy cluster over and over."""
    warned = list[str]()
    assert told_after(whereabouts("0.0.0.0", warned=warned), shown) == believed
    assert len(warned) == warnings
    assert all("listen = 0.0.0.0:7450" in each and "advertise" in each for each in warned)


def test_an_ipv6_address_that_people_gave_is_told_though_this_process_listens_for_ipv4_alone() -> None:
    """What forwards there may well turn one into the other."""
    warned = list[str]()
    where = whereabouts("0.0.0.0", "[2001:db8::9]:7", warned=warned)
    assert told_after(where, ["2001:db8::7"]) == "[2001:db8::9]:7"
    assert warned == []


@pytest.mark.parametrize(
    ("listening", "advertise", "known"),
    [
        ("192.0.2.1", "", "192.0.2.1:7450"),
        ("192.0.2.1", "198.51.100.1:7", "198.51.100.1:7"),
        ("0.0.0.0", "198.51.100.1:7", "198.51.100.1:7"),
        ("192.0.2.1", "none", "192.0.2.1:7450"),
    ],
)
def test_what_is_known_from_the_beginning_is_told_whatever_connections_show(
    listening: str, advertise: str, known: str
) -> None:
    where = whereabouts(listening, advertise)
    assert where.known == known == told_after(where, ["127.0.0.1", "203.0.113.9"])
    assert where.hidden == (advertise == "none")


def test_who_only_dials_out_tells_its_mates_what_connections_show() -> None:
    assert told_after(whereabouts("0.0.0.0", "none"), ["10.0.0.5"]) == "10.0.0.5:7450"


@pytest.mark.parametrize("advertise", ["", "none"])
@pytest.mark.parametrize(
    ("shown", "believed"),
    [
        (["192.0.2.7", "192.0.2.7"], "192.0.2.7:7450"),
        (["192.0.2.7", "127.0.0.1"], "192.0.2.7:7450"),
        (["192.0.2.7", "198.51.100.7"], "198.51.100.7:7450"),
        (["192.0.2.7", "198.51.100.7", "203.0.113.9"], "198.51.100.7:7450"),
    ],
)
def test_an_address_that_this_machine_has_lost_is_told_no_longer_than_until_there_is_another(
    advertise: str, shown: list[str], believed: str
) -> None:
    """Regression: others dialed it for good, and a leader opened no store for its cluster there."""
    assert told_after(whereabouts("0.0.0.0", advertise, gone=("192.0.2.7",)), shown) == believed


def test_what_people_said_is_told_though_it_is_no_address_of_this_machine() -> None:
    """As behind a NAT, whose address they give."""
    where = whereabouts("0.0.0.0", "192.0.2.1:7", gone=("192.0.2.1",))
    assert told_after(where, ["198.51.100.7"]) == "192.0.2.1:7"


@pytest.mark.parametrize(
    ("listening", "advertise", "shown", "interface"),
    [
        ("0.0.0.0", "", [], "0.0.0.0"),
        ("0.0.0.0", "", ["127.0.0.1", "10.0.0.5"], "10.0.0.5"),
        ("0.0.0.0", "none", ["10.0.0.5"], "10.0.0.5"),
        ("0.0.0.0", "", ["2001:db8::7"], "2001:db8::7"),
        ("0.0.0.0", "", ["2001:db8::7", "10.0.0.5", "2001:db8::7"], "10.0.0.5"),
        ("::", "", ["2001:db8::7", "10.0.0.5"], "2001:db8::7"),
        ("0.0.0.0", "203.0.113.9:7450", [], "0.0.0.0"),
        ("0.0.0.0", "203.0.113.9:7450", ["10.0.0.5"], "10.0.0.5"),
        ("0.0.0.0", "node.example:7450", ["10.0.0.5"], "10.0.0.5"),
        ("0.0.0.0", "192.0.2.1:7450", ["10.0.0.5"], "192.0.2.1"),
        ("10.0.0.5", "203.0.113.9:7450", ["127.0.0.1"], "10.0.0.5"),
        ("10.0.0.5", "", ["192.0.2.7"], "10.0.0.5"),
    ],
)
def test_a_cluster_meets_at_an_address_of_its_machines_wherever_people_say_that_others_dial_them(
    listening: str, advertise: str, shown: list[str], interface: str
) -> None:
    """Regression: behind a NAT that forwards a port no group was ever formed, for its address cannot be listened at."""
    where = whereabouts(listening, advertise, gone=("203.0.113.9",))
    told_after(where, shown)
    assert where.interface == interface


def test_the_machines_own_address_is_another_once_it_is_lost() -> None:
    where = whereabouts("0.0.0.0", "203.0.113.9:7450", gone=("203.0.113.9", "10.0.0.5"))
    told_after(where, ["10.0.0.5", "10.0.0.6"])
    assert where.interface == "10.0.0.6"
