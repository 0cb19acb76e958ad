"""The stack: the notices of one machine are the inputs of the next.

    connections, frames, time
        │
    members ── who of my cluster is alive ──► election ── who leads it ──► mesh, links, babel (leaders only)
        │                                        │                            │
        └──► roster (process group inside)       └──────────► rounds ◄────────┘ who of the mesh is alive

A follower runs the same machines; its mesh is a passive copy kept by its leader, and links and routes rest until
it leads itself. Gossip and routing decide only whom to ask and which way to send (they may be wrong for a
while); what is applied is decided by `rounds` alone.

Every input is a method that takes `now` and returns the commands that the driver must execute in order. Whatever
an input changed is carried through to all machines before it returns (`_settle`), so that no machine ever acts
on a half-told story.
"""

from __future__ import annotations

import random
from math import inf
from typing import Any

import msgspec

from ictp2p.core import views
from ictp2p.core.cards import FREE, ClusterCard, Limits, PeerCard, decode_cluster_card, decode_peer_card, encode_card
from ictp2p.core.commands import (
    BulkInvited,
    Command,
    ConfigDiffers,
    Dial,
    Hangup,
    IdentityTaken,
    MemberChanged,
    Violated,
)
from ictp2p.core.contacts import Contacts
from ictp2p.core.context import Context
from ictp2p.core.dialing import Dialer
from ictp2p.core.directory import Directory
from ictp2p.core.doubts import doubtful
from ictp2p.core.machines import CODECS, Machines
from ictp2p.core.meetings import Meetings
from ictp2p.core.neighbourhood import Neighbourhood
from ictp2p.core.observers import Observers
from ictp2p.core.overlay import COMPLETE
from ictp2p.core.packets import (
    BETWEEN_CLUSTERS,
    ONE_HOP,
    BulkInvitation,
    Channel,
    Packet,
    decode_packet,
)
from ictp2p.core.post import Post
from ictp2p.core.publication import Publication
from ictp2p.core.thrift import Thrift
from ictp2p.core.timetable import Timetable
from ictp2p.errors import ProtocolError, RemoteProtocolError
from ictp2p.gossip.election import LeaderChanged
from ictp2p.gossip.links import LinkChanged, LinkLost
from ictp2p.gossip.messages import (
    Displaced,
    Doubled,
    MemberCleared,
    MemberFailed,
    MemberJoined,
    MemberLeft,
    MemberSuspected,
    MemberUpdated,
    Record,
)
from ictp2p.machine import Effects, Message, Notice, Persist, Send
from ictp2p.sync.devices import Device
from ictp2p.sync.roster import HeirFound
from ictp2p.types import ClusterId, PeerId

_PASSES = 32
"""Most passes of `_finish`: each carries a change one machine further, and the stack is not that tall."""

_SWEEP = 60.0
"""Seconds between two looks at who may be forgotten. No timer of its own: something is due every few seconds anyway."""

_CARDS = 24
"""Times as long as membership remembers the dead, a day: only who still has the other's card can heal a partition."""

_LAST = 32
"""Dead clusters that are dialed for good: there may be one that is back, and cannot dial."""

_QUIET = frozenset({Channel.LINKS, Channel.ROUTES})
"""Channels whose notices change nothing that the others are told, but for the measurements in this cluster's card."""

_STATUS: dict[type[Notice], str] = {
    MemberJoined: "alive",
    MemberCleared: "alive",
    MemberSuspected: "suspect",
    MemberFailed: "dead",
    MemberLeft: "left",
}


class Core:
    """The control plane of one peer.

    Args:
        machines: the machines, already restored from disk.
        card: what this peer says about itself.
        rng: jitter.
        limits: what plans may ask of this peer.
        complete: clusters up to which every two leaders stay connected; see `overlay`.
    """

    def __init__(
        self, machines: Machines, card: PeerCard, rng: random.Random, limits: Limits = FREE, complete: int = COMPLETE
    ) -> None:
        self.m = machines
        self.directory = Directory(card)
        self.dialer = Dialer(rng)
        self._context = Context(card, self.directory, machines, run=self._run)
        self._thrift = Thrift(self._context)
        self._neighbourhood = Neighbourhood(self._context, self._thrift.serves)
        self._post = Post(self._context, self._neighbourhood)
        self._context.send = self._post.send
        self._observers = Observers(self._context)
        self._meetings = Meetings(self._context, self._thrift, self._observers)
        self._contacts = Contacts(self._context, self._meetings, complete)
        self.publication = Publication(self._context, self._neighbourhood, limits)
        self._machines = _by_channel(machines)
        self._timetable = Timetable(self._machines)
        self._parts = (self.dialer, self._thrift, self._meetings, self._observers, self.publication)
        self._told: dict[str, object] = {}
        self._based: dict[str, object] = {}
        self._swept = 0.0
        self._show_way(0.0)

    # ------------------------------------------------------------ inputs from the driver

    def start(self, incarnation: int, now: float) -> list[Command]:
        """Come alive, alone; `incarnation` is greater than in any former life."""
        self._context.now = now
        self._run(Channel.MEMBERS, self.m.members.start(encode_card(self.card), incarnation, now))
        self._run(Channel.ROUNDS, self.m.rounds.start(now))
        return self._finish()

    def joined(self, now: float) -> list[Command]:
        """The founder's word that there is nobody to wait for; others are in when a mesh view reaches them."""
        self._context.now = now
        self._meetings.join()
        return self._finish()

    def opened(self, peer: PeerId, now: float) -> list[Command]:
        """A control connection to `peer` is open; it proved that it is that peer."""
        self._context.now = now
        self._post.open.add(peer)
        self._meetings.departed.discard(peer)
        self.dialer.opened(peer, now)
        self._observers.forget(peer)
        self._thrift.forget(peer)
        self._thrift.changed()
        self._based.pop("needed", None)  # what this side said of it, it said on the connection before
        self._meetings.greet(peer)
        return self._finish()

    def lost(self, peer: PeerId, now: float) -> list[Command]:
        """The connection to `peer` ended, for whatever reason."""
        self._context.now = now
        self._post.open.discard(peer)
        self.dialer.lost(peer, now)
        agreed = peer in self._thrift.parted
        self._observers.forget(peer)
        self._thrift.forget(peer)
        if peer in self._meetings.greeted:
            self._meetings.greeted.discard(peer)
            self._context.dirty = True
            if not agreed:
                self._broken(peer, refused=False)
        return self._finish()

    def dial_failed(self, peer: PeerId, refused: bool, now: float) -> list[Command]:
        """A `Dial` did not succeed; `refused` if the host itself said that nobody listens there."""
        self._context.now = now
        self.dialer.failed(peer, now)
        if refused and peer not in self._meetings.departed:
            self._broken(peer, refused=True)
        return self._finish()

    def receive(self, peer: PeerId, frame: bytes, now: float) -> list[Command]:
        """A frame arrived on the connection to `peer`.

        Raises:
            RemoteProtocolError: the frame cannot be what a peer sends; hang up.
        """
        self._context.now = now
        packet = decode_packet(frame)
        self._heard(peer)
        if packet.target != self.card.peer:
            self._post.forward(packet)
        elif packet.channel in ONE_HOP and packet.source != peer:
            raise RemoteProtocolError(f"{peer} relayed a {packet.channel.name} packet of {packet.source}")
        else:
            self._post.inbox.append((peer, packet))
        return self._finish()

    def heard(self, peer: PeerId, now: float) -> list[Command]:
        """Bytes of `peer` arrived on a connection of the data plane: it lives."""
        self._context.now = now
        self._heard(peer)
        return self._finish()

    def handle_timeout(self, now: float) -> list[Command]:
        """Do what has become due."""
        self._context.now = now
        for channel in self._timetable.due(now):
            self._run(channel, self._machine(channel).handle_timeout(now))
        self._context.dirty |= self.publication.is_due()
        self._meetings.show_what_waits()
        self._observers.handle_timeout()
        self._context.dirty |= self._thrift.handle_timeout()
        self._forget()
        return self._finish()

    def next_timeout(self) -> float | None:
        """When something becomes due."""
        soonest = self._timetable.next_timeout()
        for part in self._parts:
            due = part.next_timeout()
            if due is not None and due < soonest:
                soonest = due
        return None if soonest == inf else soonest

    def _forget(self) -> None:
        """Those who are there no more, for many times as long as membership remembers them, are not dialed for ever."""
        now = self._context.now
        if now < self._swept + _SWEEP:
            return
        self._swept = now
        revision, here = self.directory.revision, self._post.open.union(self._context.mates())
        after = _CARDS * self.m.members.profile.forget_after
        present = map(ClusterId, self.m.mesh.members) if self.m.rounds.in_touch() else self.directory.clusters
        self.directory.forget_clusters(tuple(present), now, after, _LAST)
        self.directory.forget(here, now, after)
        self._meetings.forget()
        self._context.dirty |= self.directory.revision != revision

    # ------------------------------------------------------------ inputs from the training side

    def set_training(self, training: bool, draining: bool, config: bytes, now: float) -> list[Command]:
        """Say whether rounds should wait for this peer's cluster, and by which model and policy it trains."""
        self._context.now = now
        told = self.publication
        told.training, told.draining, told.config = training, draining, config
        self._context.dirty = True
        return self._finish()

    def call(self, channel: Channel, effects: Effects, now: float) -> list[Command]:
        """Carry out what an input of one machine asked for, as in `core.call(ROUNDS, machines.rounds.ready(...))`."""
        self._context.now = now
        self._run(channel, effects)
        self._context.dirty |= channel not in _QUIET
        return self._finish()

    def readdress(self, address: str, now: float) -> list[Command]:
        """This peer learnt where it can be dialed: tell everybody."""
        return self._recard(msgspec.structs.replace(self.card, address=address), now)

    def equip(self, device: Device, now: float) -> list[Command]:
        """This peer's training thread computes on `device`: tell everybody."""
        return self._recard(msgspec.structs.replace(self.card, device=device), now)

    def _recard(self, card: PeerCard, now: float) -> list[Command]:
        self._context.now = now
        self._context.card = card
        self.directory.me = self.directory.peers[card.peer] = card
        if self.m.members.active:
            self._run(Channel.MEMBERS, self.m.members.publish(encode_card(card), now))
        self._show_way(now)
        self._meetings.greet_all()
        self._context.dirty = True
        return self._finish()

    def _show_way(self, now: float) -> None:
        """Who cannot be dialed is reached through relays, and wants wide ones."""
        self._run(Channel.ROUTES, self.m.routes.set_relayed(self.card.endpoint() is None, now))

    def invite(self, peer: PeerId, ticket: bytes, now: float) -> list[Command]:
        """Ask a peer anywhere in the mesh to dial a bulk connection to this one, showing `ticket`."""
        self._context.now = now
        self._post.send(Channel.BULK, peer, BulkInvitation(ticket))
        return self._finish()

    def tell_status(self, observer: PeerId, document: bytes, now: float) -> list[Command]:
        """Answer `StatusAsked`; the document is JSON, and may be longer than a frame."""
        self._context.now = now
        self._observers.answer(observer, document)
        return self._finish()

    def leave(self, now: float) -> list[Command]:
        """Say goodbye to everybody: what follows is an end, not a failure."""
        self._context.now = now
        if self.leading and not self._context.mates():
            self._run(Channel.MESH, self.m.mesh.leave(now))  # with mates left, the cluster stays and is led by another
        self._run(Channel.MEMBERS, self.m.members.leave(now))
        self._meetings.part()
        return self._finish()

    # ------------------------------------------------------------ what others ask

    @property
    def card(self) -> PeerCard:
        """What this peer says about itself."""
        return self._context.card

    @property
    def leading(self) -> bool:
        """Whether this peer leads its cluster."""
        return self._context.leading

    @property
    def leader(self) -> PeerId | None:
        """Who leads this cluster, as far as this peer knows."""
        return self._context.leader

    def connected(self) -> list[PeerId]:
        """Peers with an open connection whose greeting has arrived."""
        return sorted(self._meetings.greeted)

    def has_greeted(self, peer: PeerId) -> bool:
        """Whether the greeting of a peer has arrived on the connection that there is."""
        return peer in self._meetings.greeted or peer in self._observers

    def linked(self) -> list[PeerId]:
        """Peers with an open connection, greeted or not."""
        return sorted(self._post.open)

    def neighbours(self) -> list[PeerId]:
        """The leaders of neighbouring clusters, or a follower's own leader."""
        if self.leading:
            return self._neighbourhood.leaders()
        return [self.leader] if self.leader is not None and self.leader in self._meetings.greeted else []

    def neighbour(self, cluster: ClusterId) -> PeerId | None:
        """The leader of one neighbouring cluster."""
        return self._neighbourhood.leader(cluster) if self.leading else None

    def next_hop(self, target: PeerId) -> PeerId | None:
        """The connected peer to which a packet for `target` goes, or None if there is no way."""
        return self._post.next_hop(target)

    def relay(self, target: PeerId, size: int) -> PeerId | None:
        """The connected peer through which `size` bytes arrive at `target` first, or None if there is no way."""
        return self._post.relay(target, size)

    def own_view(self) -> ClusterCard | None:
        """The card of this peer's cluster: its own word if it leads, else what its leader last said."""
        return self.publication.card() if self.leading else self.directory.clusters.get(self.card.cluster)

    # ------------------------------------------------------------ packets

    def _deliver_guarded(self, bearer: PeerId, packet: Packet) -> None:
        """What one sender got wrong must not keep this peer from serving the others.

        Nor may it cost another its connection: of a packet that was passed on the source is not proven.
        """
        try:
            self._deliver(packet)
        except ProtocolError as error:
            self._context.out.append(Violated(bearer, packet.source, f"{packet.channel.name}: {error}"))
            if bearer == packet.source and bearer in self._post.open:
                self._context.out.append(Hangup(bearer, str(error)))

    def _deliver(self, packet: Packet) -> None:
        channel = packet.channel
        self._timetable.touch(channel)  # here already: a machine may refuse the second half of a message
        message = CODECS[channel].decode(packet.body)
        if channel is Channel.HELLO:
            self._meetings.receive(packet.source, message)
        elif isinstance(message, BulkInvitation):
            self._context.out.append(BulkInvited(packet.source, message.ticket))
        elif channel in BETWEEN_CLUSTERS:
            self._deliver_between_clusters(channel, packet, message)
        else:
            self._run(channel, self._machine(channel).receive(packet.source, message, self._context.now))

    def _deliver_between_clusters(self, channel: Channel, packet: Packet, message: Message) -> None:
        """Only a leader speaks for its cluster, and only to a leader."""
        from_neighbour = self._neighbourhood.leader(packet.cluster) == packet.source
        if self.leading and (from_neighbour or channel not in ONE_HOP):
            self._run(channel, self._machine(channel).receive(packet.cluster, message, self._context.now))

    # ------------------------------------------------------------ evidence of life

    def _heard(self, peer: PeerId) -> None:
        cluster = self.directory.cluster_of(peer)
        if cluster == self.card.cluster:
            if self.m.members.awaits(peer):
                self._run(Channel.MEMBERS, self.m.members.heard(peer, self._context.now))
        elif cluster is not None and self.m.mesh.awaits(cluster) and self._neighbourhood.leader(cluster) == peer:
            self._run(Channel.MESH, self.m.mesh.heard(cluster, self._context.now))

    def _broken(self, peer: PeerId, *, refused: bool) -> None:
        """The end of a connection is evidence at once; what it proves is for the membership machines to weigh."""
        cluster = self.directory.cluster_of(peer)
        self._context.dirty = True
        if cluster == self.card.cluster:
            self._run(Channel.MEMBERS, self.m.members.broken(peer, refused, self._context.now))
        elif cluster is not None and self.directory.leader_of(cluster) == peer:
            self._run(Channel.MESH, self.m.mesh.broken(cluster, refused, self._context.now))

    # ------------------------------------------------------------ effects and notices

    def _run(self, channel: Channel, effects: Effects) -> None:
        self._timetable.touch(channel)
        for effect in effects:
            match effect:
                case Send(to=to, message=message):
                    self._post.send(channel, to, message)
                case Persist():
                    self._context.out.append(effect)
                case MemberUpdated(record=record):  # mostly of measurements and versions: those concern plans alone
                    before = self.directory.revision
                    self._member_seen(channel, record)
                    self._context.dirty |= self.directory.revision != before
                case Notice():
                    self._context.dirty |= channel not in _QUIET
                    self._notice(channel, effect)

    def _notice(self, channel: Channel, notice: Notice) -> None:
        match notice:
            case MemberJoined(record=record):
                self._member_seen(channel, record)
                if channel is Channel.MEMBERS:
                    self._meetings.departed.discard(PeerId(record.member))
            case MemberFailed(member=member) if channel is Channel.MESH:
                self.directory.lapse(ClusterId(member))
                self._meetings.recall_claims(ClusterId(member))
            case MemberLeft(member=member) if channel is Channel.MESH:
                self.directory.forget_cluster(ClusterId(member))
            case Displaced(record=record) if channel is Channel.MESH:
                self._displaced(record)
            case LeaderChanged():
                self._leader_changed(notice)
            case Doubled(record=record):
                notice = self._doubled(channel, record)
            case HeirFound(heir=heir):
                self._run(Channel.ELECTION, self.m.election.hand_over(heir))
            case LinkChanged(neighbour=neighbour):
                self._neighbourhood.link_changed(neighbour)
                self.publication.put_off()
                self._doubt()
            case LinkLost(neighbour=neighbour):
                self._neighbourhood.link_lost(neighbour)
                self.publication.put_off()
            case _:
                pass
        status = _STATUS.get(type(notice))
        if status is not None:
            notice = MemberChanged(channel.name.lower(), notice.member, status)  # type: ignore[attr-defined]
        self._context.out.append(notice)

    def _doubt(self) -> None:
        """Have links probed again that show less than the lines at their ends."""
        doubted = doubtful(self._context.cluster, self._neighbourhood.link_cards(), self.directory.living())
        self._run(Channel.LINKS, self.m.links.doubt(doubted, self._context.now))

    def _member_seen(self, channel: Channel, record: Record) -> None:
        if channel is Channel.MEMBERS:
            self.directory.learn_peer(decode_peer_card(record.payload))
            return
        card = decode_cluster_card(record.payload)
        if self.directory.learn_cluster(card):
            self._meetings.departed.discard(card.leader)
        if card.config and self.publication.config and card.config != self.publication.config:
            self._context.out.append(ConfigDiffers(card))
        if card.cluster == self.card.cluster:
            self._claimed_elsewhere(card)

    def _displaced(self, record: Record) -> None:
        """Another peer speaks for this cluster with a newer record."""
        card = decode_cluster_card(record.payload)
        self.directory.learn_peer(next(w for w in card.workers if w.peer == card.leader))
        self._claimed_elsewhere(card)
        if self.leading:  # of two claims of one term ours holds: the other's record must not remain the newest
            self.m.mesh.outbid(record, self._context.now)
            self._timetable.touch(Channel.MESH)

    def _doubled(self, channel: Channel, record: Record) -> IdentityTaken:
        if channel is Channel.MEMBERS:
            return IdentityTaken(decode_peer_card(record.payload).address)
        card = decode_cluster_card(record.payload)
        return IdentityTaken(next(w.address for w in card.workers if w.peer == card.leader))

    def _claimed_elsewhere(self, card: ClusterCard) -> None:
        """The mesh names a leader of this cluster: the election has to hear of it."""
        self._run(Channel.ELECTION, self.m.election.seen(card.term, card.leader, self._context.now))

    def _leader_changed(self, notice: LeaderChanged) -> None:
        now = self._context.now
        self.directory.learn_claim(self.card.cluster, notice.term, notice.leader)
        self._neighbourhood.forsake()
        if self.leading:
            # The same router goes on: what it knows of feasible distances is what keeps routes free of loops. Only its
            # sequence number must exceed all that this cluster used before, whoever led it.
            self.m.routes.seqno = max(self.m.routes.seqno, notice.term << 32)
            self.publication.begin(notice.term)
        else:
            self.m.mesh.stop()
            self._timetable.touch(Channel.MESH)
        self._meetings.greet_all()  # a follower too: those it let in may know nobody else of this cluster
        self._run(Channel.ROSTER, self.m.rosters.leader(notice.leader, notice.term, now))

    # ------------------------------------------------------------ carrying changes through

    def _finish(self) -> list[Command]:
        """Deliver what this peer sent to itself, tell every machine what changed, and hand out the commands."""
        for _ in range(_PASSES):
            while self._post.inbox:
                self._deliver_guarded(*self._post.inbox.popleft())
            if not self._context.dirty:
                break
            self._context.dirty = False
            self._settle()
        commands, self._context.out = self._context.out, []
        for peer, address in self.dialer.dial(self._context.now):
            commands.append(Dial(peer, address))
        return commands

    def _settle(self) -> None:
        self._settle_cluster()
        self._neighbourhood.settle(self._meetings.greeted)
        self._settle_mesh()
        wishes = (self.leading, frozenset(self._meetings.departed))
        if self._is_new_basis("wanted", wishes):
            wanted = self._contacts.wanted()
            self.dialer.want(wanted, self._context.now)
            self._thrift.picked(frozenset(wanted), crowded=self._contacts.crowded)
        if self._is_new_basis("needed", (wishes, frozenset(self._meetings.greeted))):
            self._thrift.settle(self._meetings.greeted, self._contacts.can_be_spared)
        self._neighbourhood.admit()

    def _settle_cluster(self) -> None:
        if not self._meetings.joined or not self._is_new_basis("members", ()):
            return
        alive = tuple(PeerId(p) for p in self.m.members.alive())
        suspects = frozenset(PeerId(p) for p in self.m.members.suspects())
        ranks = {p: self.directory.peers[p].rank for p in alive if p in self.directory.peers}
        if self._is_news("members", (alive, suspects, tuple(sorted(ranks.items())))):
            now = self._context.now
            self._run(Channel.ELECTION, self.m.election.view(alive, suspects, now, ranks))
            self._run(Channel.ROSTER, self.m.rosters.view(alive, now, suspects))

    def _settle_mesh(self) -> None:
        now = self._context.now
        self.publication.renew()
        own = self.own_view()
        if not self._is_new_basis("view", own and msgspec.structs.replace(own, version=0, links=())):
            return
        view = views.cluster_views(self.directory, self.m.mesh, own)
        suspects = views.suspected_peers(self.directory, self.m.mesh, self.m.members)
        if self._is_news("view", (view, suspects)):
            self._run(Channel.ROUNDS, self.m.rounds.view(view, now))
            self._run(Channel.ROUNDS, self.m.rounds.suspects(suspects, now))
            self._meetings.show_mesh_to_mates()

    def _is_new_basis(self, what: str, *parts: object) -> bool:
        """Whether anything differs of what a computation rests on, who is there and what they say included."""
        basis = (self.directory.revision, self.m.members.revision, self.m.mesh.revision, *parts)
        if self._based.get(what) == basis:
            return False
        self._based[what] = basis
        return True

    def _is_news(self, what: str, value: object) -> bool:
        """Whether a value differs from the one that was last told under this name."""
        if self._told.get(what) == value:
            return False
        self._told[what] = value
        return True

    def _machine(self, channel: Channel) -> Any:
        return self._machines[channel]


def _by_channel(m: Machines) -> dict[Channel, Any]:
    return {
        Channel.MEMBERS: m.members,
        Channel.MESH: m.mesh,
        Channel.LINKS: m.links,
        Channel.ROUTES: m.routes,
        Channel.ELECTION: m.election,
        Channel.ROSTER: m.rosters,
        Channel.ROUNDS: m.rounds,
    }
