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
an input changed is carried through to all machines before it returns (`_finish`), so that no machine ever acts
on a half-told story. Each step has a part of its own. A packet goes through `post` and `delivery` to its machine, and
what is evidence of life or death, through `evidence` to the memberships. What a machine answers is carried out by
`consequences`. Who else has to know is found by `settling`, until nobody has.
"""

from __future__ import annotations

import random
from math import inf

import msgspec

from ictp2p.core.cards import FREE, ClusterCard, Limits, PeerCard, encode_card
from ictp2p.core.commands import Command, Dial, Resigned
from ictp2p.core.connections import Connections
from ictp2p.core.consequences import QUIET, Consequences
from ictp2p.core.contacts import Contacts
from ictp2p.core.context import Context
from ictp2p.core.delivery import Delivery
from ictp2p.core.dialing import Dialer
from ictp2p.core.directory import Directory
from ictp2p.core.evidence import Evidence
from ictp2p.core.forgetting import Forgetting
from ictp2p.core.machines import Machines
from ictp2p.core.meetings import Meetings
from ictp2p.core.membership import Membership
from ictp2p.core.neighbourhood import Neighbourhood
from ictp2p.core.observers import Observers
from ictp2p.core.overlay import COMPLETE
from ictp2p.core.packets import BulkInvitation, Channel, decode_packet
from ictp2p.core.post import Post
from ictp2p.core.publication import Publication
from ictp2p.core.settling import Settling
from ictp2p.core.thrift import Thrift
from ictp2p.core.timetable import Timetable
from ictp2p.core.unmet import Unmet
from ictp2p.machine import Effects
from ictp2p.sync.rosters.devices import Device
from ictp2p.types import ClusterId, PeerId

_PASSES = 32
"""Most passes of `_finish`: each carries a change one machine further, and the stack is not that tall."""


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
        self._context = Context(card, self.directory, machines)
        self._dialer = Dialer(rng)
        self._timetable = Timetable(machines.by_channel)
        self._build(limits, complete)
        self._show_way(0.0)

    def _build(self, limits: Limits, complete: int) -> None:
        """Put the parts together."""
        context, timetable, dialer = self._context, self._timetable, self._dialer
        self._thrift = thrift = Thrift(context)
        self._neighbourhood = neighbourhood = Neighbourhood(context, thrift.serves)
        self._post = post = Post(context, neighbourhood)
        self._observers = observers = Observers(context)
        self._unmet = unmet = Unmet(context)
        self._meetings = meetings = Meetings(context, thrift, observers, unmet)
        self.publication = publication = Publication(context, neighbourhood, limits)
        membership = Membership(context, timetable, meetings)
        consequences = Consequences(context, timetable, membership, meetings, neighbourhood, publication)
        context.send, context.run = post.send, consequences.run
        self._run = consequences.run
        self._evidence = evidence = Evidence(context, neighbourhood)
        self._connections = Connections(context, dialer, post, meetings, observers, thrift, evidence)
        self._delivery = Delivery(context, timetable, post, meetings, neighbourhood)
        contacts = Contacts(context, meetings, complete)
        self._settling = Settling(context, meetings, neighbourhood, publication, contacts, dialer, thrift)
        self._forgetting = Forgetting(context, post, meetings)
        self._waiting = (dialer, thrift, meetings, observers, publication, unmet)
        self._resigning = False

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
        self._connections.opened(peer)
        self._settling.review_needs()
        return self._finish()

    def lost(self, peer: PeerId, now: float) -> list[Command]:
        """The connection to `peer` ended, for whatever reason."""
        self._context.now = now
        self._connections.lost(peer)
        return self._finish()

    def dial_failed(self, peer: PeerId, refused: bool, now: float) -> list[Command]:
        """A `Dial` did not succeed; `refused` if the host itself said that nobody listens there."""
        self._context.now = now
        self._connections.failed(peer, refused=refused)
        return self._finish()

    def receive(self, peer: PeerId, frame: bytes, now: float) -> list[Command]:
        """A frame arrived on the connection to `peer`.

        Raises:
            RemoteProtocolError: the frame cannot be what a peer sends; hang up.
        """
        self._context.now = now
        packet = decode_packet(frame)
        self._evidence.heard(peer)
        self._post.take(peer, packet)
        return self._finish()

    def heard(self, peer: PeerId, now: float) -> list[Command]:
        """Bytes of `peer` arrived on a connection of the data plane: it lives."""
        self._context.now = now
        self._evidence.heard(peer)
        return self._finish()

    def handle_timeout(self, now: float) -> list[Command]:
        """Do what has become due."""
        self._context.now = now
        for channel in self._timetable.due(now):
            self._run(channel, self.m.by_channel[channel].handle_timeout(now))
        self._context.dirty |= self.publication.is_due()
        self._meetings.show_what_waits()
        self._observers.handle_timeout()
        self._unmet.handle_timeout()
        self._context.dirty |= self._thrift.handle_timeout()
        self._forgetting.handle_timeout()
        return self._finish()

    def next_timeout(self) -> float | None:
        """When something becomes due."""
        soonest = self._timetable.next_timeout()
        for part in self._waiting:
            due = part.next_timeout()
            if due is not None and due < soonest:
                soonest = due
        return None if soonest == inf else soonest

    # ------------------------------------------------------------ inputs from the training side

    def set_training(self, training: bool, now: float) -> list[Command]:
        """Say whether rounds should wait for this peer's cluster."""
        self._context.now = now
        self.publication.training = training
        self._context.dirty = True
        return self._finish()

    def set_behind(self, seconds: float, now: float) -> list[Command]:
        """Say how long this peer needs to fetch the state, having been overtaken at that; 0: it is behind no more."""
        self._context.now = now
        self.publication.behind = seconds
        self._context.dirty = True
        return self._finish()

    def call(self, channel: Channel, effects: Effects, now: float) -> list[Command]:
        """Carry out what an input of one machine asked for, as in `core.call(ROUNDS, machines.rounds.ready(...))`."""
        self._context.now = now
        self._run(channel, effects)
        self._context.dirty |= channel not in QUIET
        return self._finish()

    def readdress(self, address: str, now: float, *, inside: bool = False) -> list[Command]:
        """This peer learnt where it can be dialed, or dialed from `inside` its cluster: tell everybody."""
        told = {"inside": address} if inside else {"address": address}
        return self._recard(msgspec.structs.replace(self.card, **told), now)

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

    def resign(self, now: float) -> list[Command]:
        """Say goodbye to this peer's cluster; `Resigned` follows once it may leave the mesh.

        Of several that leave at once each counts on the others to stay, and the cluster would end with nobody to say
        so. Its leader therefore waits until it has an heir, or has heard all others say goodbye. One that leads since a
        moment ago waits until somebody outside hears it, too.
        """
        self._context.now = now
        self._resigning = True
        self._run(Channel.MEMBERS, self.m.members.leave(now))
        return self._finish()

    def leave(self, now: float) -> list[Command]:
        """Say goodbye to everybody: what follows is an end, not a failure."""
        self._context.now = now
        last = self.leading and self._meetings.departed.issuperset(self._context.mates())
        if last:
            self._run(Channel.MESH, self.m.mesh.leave(now))  # with mates left, the cluster stays and is led by another
        self._run(Channel.MEMBERS, self.m.members.leave(now))
        self._meetings.part(last=last)
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
        return self._connections.greeted()

    def has_greeted(self, peer: PeerId) -> bool:
        """Whether the greeting of a peer has arrived on the connection that there is."""
        return self._connections.has_greeted(peer)

    def linked(self) -> list[PeerId]:
        """Peers with an open connection, greeted or not."""
        return self._connections.open()

    def neighbours(self) -> list[PeerId]:
        """The leaders of neighbouring clusters, or a follower's own leader."""
        if self.leading:
            return self._neighbourhood.leaders()
        return [self.leader] if self.leader is not None and self.leader in self._meetings.greeted else []

    def neighbour(self, cluster: ClusterId) -> PeerId | None:
        """The leader of one neighbouring cluster."""
        return self._neighbourhood.leader(cluster) if self.leading else None

    def silent(self) -> set[PeerId]:
        """The leaders of neighbouring clusters of whom nothing is heard, though a connection to them stands."""
        return self._neighbourhood.lost()

    def next_hop(self, target: PeerId) -> PeerId | None:
        """The connected peer to which a packet for `target` goes, or None if there is no way."""
        return self._post.next_hop(target)

    def relay(self, target: PeerId, size: int) -> PeerId | None:
        """The connected peer through which `size` bytes arrive at `target` first, or None if there is no way."""
        return self._post.relay(target, size)

    def newcomers(self) -> list[PeerId]:
        """Who has greeted us, and belongs to a cluster that the mesh does not know yet: it has to elect a leader."""
        known = {*self.m.mesh.members, self.card.cluster}
        return sorted(p for p in self._meetings.greeted if self.directory.cluster_of(p) not in known)

    def own_view(self) -> ClusterCard | None:
        """The card of this peer's cluster: its own word if it leads, else what its leader last said."""
        return self.publication.view()

    # ------------------------------------------------------------ carrying changes through

    def _has_mates(self) -> bool:
        """Whether anybody else of this cluster is there, who could lead it."""
        return bool(self._meetings.greeted.intersection(self._context.mates()))

    def _unheard(self) -> bool:
        """Whether other clusters are there, and no leader of theirs is connected: a follower's mates alone may be."""
        others = (name for name in self.m.mesh.alive() if name != self._context.cluster)
        return any(True for _ in others) and not self.neighbours()

    def _finish(self) -> list[Command]:
        """Deliver what this peer sent to itself, tell every machine what changed, and hand out the commands."""
        context = self._context
        for _ in range(_PASSES):
            self._delivery.empty_inbox()
            if not context.dirty:
                break
            context.dirty = False
            self._settling.settle()
        if self._resigning and not (self.leading and (self._has_mates() or self._unheard())):
            self._resigning = False
            context.out.append(Resigned())
        commands, context.out = context.out, []
        for peer, address in self._dialer.dial(context.now):
            commands.append(Dial(peer, address))
        return commands
