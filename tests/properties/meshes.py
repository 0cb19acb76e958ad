"""Whole control planes whose workers and lines fail when they are told to, and what must hold of them all the while.

What a process does beside its stack is here as `runtime/entrance` and `runtime/departure` do it: who starts knocks at
the addresses that it knows, who has lost the others goes on dialing these, and who leaves waits for an heir.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from ictp2p.core import views
from ictp2p.core.commands import Command, Resigned
from ictp2p.disk import MemoryDisk
from ictp2p.gossip.election import LeaderChanged
from ictp2p.gossip.swim import Swim
from ictp2p.identity import Identity
from ictp2p.types import Address, ClusterId, PeerId
from tests.core.control_planes import DELAY, Host, World

CONNECT = 5.0
"""Seconds between two looks for others, as with `Config.wan`; also those for which who starts waits for an answer, and
who leaves for an heir."""
KNOCKS = 0.2
"""Seconds between two knocks of who is not let in yet."""
SELDOM = 6
"""Looks for each one of who misses nobody whom it needs."""


class Fault(NamedTuple):
    """Something that happens to a worker, by its number, or to the lines between some and the others."""

    what: str
    whom: tuple[int, ...] = ()

    def __str__(self) -> str:
        return " ".join((self.what, *map(str, self.whom)))


@dataclass
class Place:
    """Where one worker runs, or has run."""

    host: Host
    book: frozenset[Address] = frozenset()
    """The addresses that are on its disk."""
    leaving: bool = False
    looks: int = 0

    @property
    def staying(self) -> bool:
        """Whether somebody runs here, and does not leave."""
        return self.host.alive and not self.leaving

    @property
    def inside(self) -> bool:
        """Whether it has been let into the mesh, or has taken its place in it."""
        return self.host.core._meetings.joined


class Meshes(World):
    """Clusters that have met.

    Args:
        clusters: how many workers each has.
        hidden: clusters of which nobody can be dialed.
    """

    def __init__(self, clusters: Mapping[str, int], hidden: str = "") -> None:
        super().__init__()
        self.places: list[Place] = []
        self._apart: frozenset[int] = frozenset()
        self._terms: dict[PeerId, int] = {}
        self._offices: dict[tuple[PeerId, int], int] = {}
        """In which life each office was taken."""
        self._held: dict[tuple[PeerId, int, int], dict[str, tuple[tuple[int, int], bool]]] = {}
        """What each life of a worker holds of others, as a worker and as a leader: the version, and if they went."""
        for name, workers in clusters.items():
            for _ in range(workers):
                self._add(name, dialable=name not in hidden)
                self.run(0.5)
        self.run(3.0)

    def _add(self, cluster: str, *, dialable: bool) -> None:
        first = not self.places
        host = self.add(cluster, founder=first, dialable=dialable)
        if not dialable:
            self.do(host, host.core.readdress(str(host.address), self.now, inside=True))
        self.places.append(Place(host))
        self._post(0.0, self.id(host), "look", host.life)

    def twin(self) -> Meshes:
        """A copy, which goes its own way from now on."""
        memo: dict[int, object] = {}
        for host in self.hosts.values():
            for swim in (host.core.m.members, host.core.m.mesh):
                members = copy.deepcopy(swim._table.members, memo)
                memo[id(swim.members)] = MappingProxyType(members)  # which alone cannot be copied by itself
        return copy.deepcopy(self, memo)

    # --- faults

    def possible(self, fault: Fault) -> bool:
        """Whether it can happen now."""
        match fault:
            case Fault("dies" | "leaves", (number,)):
                return self.places[number].staying
            case Fault("is back" | "is replaced", (number,)):
                return not self.places[number].host.alive
            case Fault("cuts off", _):
                return not self._apart
        return bool(self._apart)

    def befall(self, fault: Fault) -> None:
        """Let it happen."""
        match fault:
            case Fault("dies", (number,)):
                self._end(self.places[number])
            case Fault("leaves", (number,)):
                self._leave(self.places[number])
            case Fault("is back", (number,)):
                self._return(self.places[number])
            case Fault("is replaced", (number,)):
                self._replace(self.places[number])
            case Fault("cuts off", numbers):
                self._apart = frozenset(numbers)
                self._tear()
            case _:
                self.mend()

    def mend(self) -> None:
        """No line is cut any more."""
        self._apart = frozenset()
        self.cut.clear()

    def _tear(self) -> None:
        for one in self._apart:
            for other in set(range(len(self.places))) - self._apart:
                self.sever(self.places[one].host, self.places[other].host)

    def _end(self, place: Place) -> None:
        place.book |= _known(place.host)
        self.kill(place.host)

    def _leave(self, place: Place) -> None:
        place.leaving = True
        host = place.host
        self._post(CONNECT, self.id(host), "leave", host.life)
        self.do(host, host.core.resign(self.now))

    def _return(self, place: Place) -> None:
        """The same worker again, with its disk."""
        old = place.host
        self._begin(place, self._start(old.identity, old.core.card, old.disk, old.address, life=old.life + 1))

    def _replace(self, place: Place) -> None:
        """Another worker where one was, which knows where to look for others and nothing else."""
        old, identity = place.host, Identity.from_bytes(self.rng.randbytes(32), self.rng.randbytes(32))
        card = msgspec.structs.replace(old.core.card, peer=identity.peer_id, bulk_public=identity.bulk_public)
        place.book = frozenset()
        self._begin(place, self._start(identity, card, MemoryDisk(), old.address, life=1))

    def _begin(self, place: Place, host: Host) -> None:
        place.host, place.leaving, place.looks = host, False, 0
        self._tear()
        self._look(place)
        if host.core.m.rounds.tip is not None:
            self._post(CONNECT if host.open else 0.0, self.id(host), "join", host.life)

    # --- what a process does beside its stack

    def _happen(self, target: PeerId, kind: str, arguments: tuple[object, ...]) -> None:
        host = self.hosts[target]
        if kind in ("frame", "dial"):
            super()._happen(target, kind, arguments)
        elif host.alive and arguments == (host.life,):
            place = next(place for place in self.places if place.host is host)
            if kind == "look":
                self._look(place)
            elif kind == "join" and not place.inside:
                self.do(host, host.core.joined(self.now))
            elif kind == "leave" and place.leaving:
                self._say_goodbye(place)
            elif kind == "end":
                self._end(place)

    def _say_goodbye(self, place: Place) -> None:
        """What it says arrives before its kernel closes the connections."""
        host = place.host
        self.do(host, host.core.leave(self.now))
        self._post(2 * DELAY, self.id(host), "end", host.life)

    def _look(self, place: Place) -> None:
        """Dial where others may be."""
        if place.leaving:
            return
        host, place.looks = place.host, place.looks + 1
        pause = CONNECT if place.inside or host.core.m.rounds.tip is not None else KNOCKS
        self._post(pause, self.id(host), "look", host.life)
        sought = self._sought(place)
        for other in self.places:
            if other is not place and other.host.address in sought:
                self._call(host, other.host)

    def _sought(self, place: Place) -> frozenset[Address]:
        core, known = place.host.core, place.book | _known(place.host)
        if not place.inside and core.m.rounds.tip is None:
            return frozenset(other.host.address for other in self.places)
        if not (core.connected() and core.m.rounds.in_touch()):
            return known
        if place.looks % SELDOM or not core.leading:
            return frozenset()
        here = views.present_peers(core.directory, core.m.mesh, core.m.members)
        return known - {core.directory.endpoint(peer) for peer in here} if core.neighbours() else known

    def _call(self, host: Host, other: Host) -> None:
        """Dial an address; that nobody answers there is no evidence."""
        one, two = self.id(host), self.id(other)
        if other.alive and self._is_reached(host, other) and frozenset((one, two)) not in self.cut:
            self._connect(one, two)

    def _is_reached(self, host: Host, other: Host) -> bool:
        return bool(other.core.card.address) or other.core.card.cluster == host.core.card.cluster

    def _connect(self, a: PeerId, b: PeerId) -> None:
        other = self.hosts[b]
        other.dialable = self._is_reached(self.hosts[a], other)
        super()._connect(a, b)

    # --- what must hold

    def do(self, host: Host, todo: list[Command]) -> None:
        super().do(host, todo)
        me = self.id(host)
        for command in todo:
            match command:
                case Resigned():
                    self._post(0.0, me, "leave", host.life)
                case LeaderChanged(leader=leader, term=term) if leader == me:
                    life = self._offices.setdefault((me, term), host.life)
                    assert life == host.life, (
                        f"{me} took the office of term {term} in two lives, {life} and {host.life}"
                    )
        term = host.core.m.election.term
        assert self._terms.get(me, 0) <= term, f"{me} knew of term {self._terms[me]}, and goes by term {term}"
        self._terms[me] = term
        self._compare(host, host.core.m.members, 0)
        self._compare(host, host.core.m.mesh, 1)

    def _compare(self, host: Host, swim: Swim, which: int) -> None:
        """What somebody holds of others is never older than it was; who is gone is back only in a greater incarnation.

        Who keeps a copy of another's view takes over what that one thinks.
        """
        key = (self.id(host), host.life, which)
        before = self._held.get(key, {})
        held = {
            name: (each.record.version, swim.active and not each.status.present) for name, each in swim.members.items()
        }
        for name, (version, _) in held.items():
            former, gone = before.get(name, ((-1, 0), False))
            assert former <= version, f"{key[0]} held {former} of {name}, and then {version}"
            back = gone and swim.active and swim.members[name].status.present
            assert not back or version[0] > former[0], (
                f"{name} is back for {key[0]} in {version}, and was gone in {former}"
            )
        self._held[key] = held

    def settled(self) -> bool:
        """Whether all who are there see each other, nobody else, and one leader of each cluster."""
        clusters: dict[ClusterId, list[Host]] = {}
        for place in self.places:
            if place.host.alive:
                clusters.setdefault(place.host.core.card.cluster, []).append(place.host)
        leaders = {name: [self.id(host) for host in hosts if host.core.leading] for name, hosts in clusters.items()}
        if any(place.host.alive and place.leaving for place in self.places):
            return False
        if any(len(each) != 1 for each in leaders.values()):
            return False
        one = {name: leader for name, (leader,) in leaders.items()}
        return all(self._sees(host, clusters, one) for hosts in clusters.values() for host in hosts)

    def errors(self) -> set[str]:
        """What some who are there think of others who are, and is wrong."""
        found = set()
        here = [place.host for place in self.places if place.host.alive]
        clusters = {host.core.card.cluster for host in here}
        names = {*clusters, *(self.id(host) for host in here)}
        for host in here:
            views = {**host.core.m.members.members, **host.core.m.mesh.members}
            found |= {member.status.name for name, member in views.items() if name in names}
        leading = [host.core.card.cluster for host in here if host.core.leading]
        return (found - {"ALIVE"}) | ({"RIVALS"} if len(leading) > len(set(leading)) else set())

    def _sees(self, host: Host, clusters: Mapping[ClusterId, list[Host]], leaders: Mapping[ClusterId, PeerId]) -> bool:
        core, own = host.core, host.core.card.cluster
        others = {name: leader for name, leader in leaders.items() if name != own}
        return (
            core.leader == leaders[own]
            and core.m.members.alive() == tuple(sorted(self.id(mate) for mate in clusters[own]))
            and {*core.m.mesh.alive()} - {own} == {*others}
            and not core.m.members.suspects()
            and not core.m.mesh.suspects()
            and all(core.directory.leader_of(name) == leader for name, leader in others.items())
            and (not core.leading or core.neighbours() == [others[name] for name in sorted(others)])
        )


def _known(host: Host) -> frozenset[Address]:
    """Where others are, as far as a worker has been told."""
    directory = host.core.directory
    known = (directory.endpoint(peer) for peer in directory.peers if peer != host.core.card.peer)
    return frozenset(address for address in known if address is not None)
