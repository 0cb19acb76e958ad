"""Who has greeted us, and how a newcomer gets in.

The two ends of a connection introduce themselves first: card, leader, term. A newcomer then gets a copy of the mesh
view from whomever it asked, and with it the address of everybody whom it needs to know. Workers of a cluster that
nobody leads yet are in no view; they find each other because each peer introduces those who greeted it.

A goodbye is believed: who said it is neither suspected nor dialed when its connection ends, until it is back: it
greets again, or has itself announced as a member or a leader. Who cannot be dialed itself would wait for ever for that
greeting.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf

from ictp2p.core.cards import MAX_WORKERS, ClusterCard, PeerCard, checked_peer, decode_cluster_card, encode_card
from ictp2p.core.commands import IdentityTaken, MeshLearned
from ictp2p.core.context import Context
from ictp2p.core.machines import CODECS
from ictp2p.core.observers import Observers
from ictp2p.core.packets import (
    INTRODUCED,
    Channel,
    Goodbye,
    Greeting,
    Introduction,
    MeshCopy,
    Need,
    Parting,
    StatusRequest,
)
from ictp2p.core.thrift import Thrift
from ictp2p.core.unmet import Unmet
from ictp2p.errors import RemoteProtocolError
from ictp2p.gossip.messages import Record, Sight, Status, SwimState
from ictp2p.machine import Message
from ictp2p.types import ClusterId, PeerId

_SHOWING = 0.25
"""Seconds between two showings of the whole mesh view to one's mates. A single change is shown at once; while N
clusters come up together, one showing for each would be N times N records."""
_SURVEYED = 5.0
"""Seconds for which news of what links measure gathers before a mate who plans is shown them."""
_SHOWN = 64 << 20
"""Bytes per second that a leader shows its mates at most: hundreds of them are shown the cards of hundreds of workers
each more seldom."""
_PART = 512 * 1024
"""Bytes of records in one copy of the view: a frame takes twice as many, and the sender's card goes with the last."""
_BESIDE = 256
"""Bytes of a record beside its payload, and a few more."""


class Meetings:
    """Greetings, introductions and goodbyes of one peer."""

    def __init__(self, context: Context, thrift: Thrift, observers: Observers, unmet: Unmet) -> None:
        self._context = context
        self._thrift = thrift
        self._observers = observers
        self._unmet = unmet
        self.greeted: set[PeerId] = set()
        """Peers with an open connection whose greeting has arrived; observers are none of them."""
        self.departed: set[PeerId] = set()
        """Peers that said goodbye and have not been back."""
        self._claims: dict[PeerId, tuple[int, PeerId]] = {}
        """What each of them said last of its cluster's leader: (term, leader)."""
        self._shown_at = -inf
        self._show_at: float | None = None
        self._pause = _SHOWING
        """Seconds from the last showing to the next."""
        self._surveyed = 0
        """Which survey (`Directory.surveys`) was shown to a mate who plans."""
        self._survey_at: float | None = None
        self.joined = False
        """Whether this peer is in: it founded the mesh, or has been shown it."""
        self._parting = False
        """Whether it has said goodbye: a greeting after that, of its heir say, would be of one who is back."""
        self._last = False
        """Whether its cluster has left with it: whom it lets in after that need not know who led it."""

    def greet(self, peer: PeerId) -> None:
        """Say who we are, unless we have said goodbye."""
        if self._parting:
            return
        context = self._context
        greeting = Greeting(context.card, context.leader or PeerId(""), context.m.election.term)
        context.send(Channel.HELLO, peer, greeting)

    def greet_all(self) -> None:
        """Say it again to everybody: something in the greeting has changed."""
        for peer in sorted(self.greeted):
            self.greet(peer)

    def recall_claims(self, cluster: ClusterId, gone: PeerId | None = None) -> None:
        """The leader that we took for a cluster's has failed: another may have told us of itself while we did not.

        Or one that spoke for the cluster is `gone`, and said so: then its own claim is nothing to go by.
        """
        for peer in sorted(self.greeted):
            if peer in self._claims and self._context.directory.cluster_of(peer) == cluster:
                term, leader = self._claims[peer]
                if leader != gone:
                    self._context.directory.learn_claim(cluster, term, leader)

    def part(self, *, last: bool) -> None:
        """Say goodbye to everybody; `last`: nobody of our cluster stays."""
        self._parting, self._last = True, last
        for peer in sorted(self.greeted):
            self._context.send(Channel.HELLO, peer, Goodbye())

    def forget(self) -> None:
        """Nothing is kept of those whom the directory does not know any more."""
        known = self._context.directory.peers
        self.departed.intersection_update(known)
        self._claims = {peer: claim for peer, claim in self._claims.items() if peer in known}

    def join(self) -> None:
        """Be in the mesh from now on, and let in whoever greeted us before."""
        if self.joined:
            return
        self.joined = self._context.dirty = True
        self._context.out.append(MeshLearned())
        for peer in sorted(self.greeted):
            self._show_mesh(peer)

    def next_timeout(self) -> float | None:
        """When `show_what_waits` has something to do."""
        return min((at for at in (self._show_at, self._survey_at) if at is not None), default=None)

    def show_what_waits(self) -> None:
        """Show the mates what came too soon after the last showing."""
        if self._show_at is not None and self._show_at <= self._context.now:
            self.show_mesh_to_mates()
        if self._survey_at is not None and self._survey_at <= self._context.now:
            self.show_mesh_to_planner()

    def show_mesh_to_mates(self) -> None:
        """Keep the followers' copies of the mesh view."""
        now = self._context.now
        self._show_at = None
        if self._context.leading and now < self._shown_at + self._pause:
            self._show_at = self._shown_at + self._pause
        elif self._context.leading:
            self._shown_at = now
            mates = [mate for mate in self._context.mates() if mate in self.greeted]
            self._pause = max(_SHOWING, self._show_copies(mates) / _SHOWN)

    def show_mesh_to_planner(self) -> None:
        """Keep the copy of a mate who plans rounds: what links measure, of which alone the others need not hear."""
        context, surveys = self._context, self._context.directory.surveys
        planner = context.m.rounds.agreement.coordinator if context.leading else None
        if surveys == self._surveyed or planner not in self.greeted or planner not in context.mates():
            self._survey_at = None
        elif self._survey_at is None:
            self._survey_at = context.now + _SURVEYED
        elif self._survey_at <= context.now:
            self._surveyed, self._survey_at = surveys, None
            self._show_copies([planner])

    def _show_copies(self, mates: Sequence[PeerId]) -> int:
        """Show the view to some mates; give how many bytes that took."""
        copies = self._copies_of_mesh()
        for copy in copies:
            for mate in mates:
                self._context.send(Channel.HELLO, mate, copy)
        return len(mates) * sum(len(copy.state) + len(copy.cluster) for copy in copies)

    def receive(self, sender: PeerId, message: Message) -> None:
        """Take a message of the hello channel.

        Raises:
            RemoteProtocolError: it contradicts what the connection has proven, or itself.
        """
        match message:
            case Greeting():
                self._greeted_by(sender, message)
            case Introduction(cards=cards):
                self._hear_of([checked_peer(each) for each in cards])
                for each in cards:
                    self._unmet.heard_of(each.peer)
            case MeshCopy():
                self._shown_mesh(sender, message)
            case Goodbye():
                self.greeted.discard(sender)
                self.departed.add(sender)
            case Need() | Parting():
                self._thrift.receive(sender, message)
            case StatusRequest():
                self._observers.ask(sender)
            case _:
                pass  # an answer to an observer, which has no stack
        self._context.dirty = True

    def _greeted_by(self, peer: PeerId, greeting: Greeting) -> None:
        context, card = self._context, checked_peer(greeting.card)
        if card.peer != peer:
            raise RemoteProtocolError(f"{peer} greeted as {card.peer}")
        if peer in (self._observers if card.cluster else self.greeted):
            raise RemoteProtocolError(f"{peer} greeted as an observer and as a member")
        if not card.cluster:
            self._observers.admit(peer)
            return
        first = peer not in self.greeted
        self.greeted.add(peer)
        context.directory.learn_peer(card)
        self._claims[peer] = (greeting.term, greeting.leader)
        context.directory.learn_claim(card.cluster, greeting.term, greeting.leader)
        if card.cluster == context.cluster:
            if greeting.leader:
                seen = context.m.election.seen(greeting.term, greeting.leader, context.now, told=True)
                context.run(Channel.ELECTION, seen)
            context.run(Channel.MEMBERS, context.m.members.meet(peer, context.now))
        if first:
            self._introduce(card)
            self._show_mesh(peer)
            context.run(Channel.ROUNDS, context.m.rounds.greet(peer, context.now))

    def _introduce(self, newcomer: PeerCard) -> None:
        """Workers of one cluster find each other at whatever peer they both asked first."""
        if newcomer.cluster == self._context.cluster:
            return
        known = self._context.directory.peers
        others = [known[p] for p in sorted(self.greeted) if p in known and p != newcomer.peer]
        mates = tuple(card for card in others if card.cluster == newcomer.cluster)
        for start in range(0, len(mates), INTRODUCED):
            self._context.send(Channel.HELLO, newcomer.peer, Introduction(mates[start : start + INTRODUCED]))
        for mate in mates:
            self._context.send(Channel.HELLO, mate.peer, Introduction((newcomer,)))

    def _show_mesh(self, peer: PeerId) -> None:
        if self.joined:
            for copy in self._copies_of_mesh():
                self._context.send(Channel.HELLO, peer, copy)

    def _copies_of_mesh(self) -> list[MeshCopy]:
        """The view, in parts if it is long; whose cluster is whose is in the last."""
        # A follower's too, as its leader last told it: whoever asks a follower the way in must learn who leads here.
        own = None if self._last else self._context.directory.clusters.get(self._context.cluster)
        states = [CODECS[Channel.MESH].encode(part) for part in parts(self._context.m.mesh.state(), _PART)]
        *first, last = states
        return [*(MeshCopy(state, b"", more=True) for state in first), MeshCopy(last, _encoded(own))]

    def _shown_mesh(self, sender: PeerId, copy: MeshCopy) -> None:
        """A follower believes its leader, a newcomer whoever let it in; to who has no leader it is evidence."""
        context = self._context
        if context.leader not in context.mates() or sender == context.leader or not self.joined:
            state = CODECS[Channel.MESH].decode(copy.state)
            if not isinstance(state, SwimState):
                raise RemoteProtocolError(f"{sender} sent a {type(state).__name__} as its mesh view")
            self._correct(sender, state)
            context.run(Channel.MESH, context.m.mesh.absorb(state, context.now))
            self._learn_addresses(state)
        if copy.cluster:
            self._told_of_cluster(sender, decode_cluster_card(copy.cluster))
        if not copy.more:
            self.join()

    def _correct(self, leader: PeerId, shown: SwimState) -> None:
        """Tell our leader what we know better: it was restarted, and has never heard of a life that we saw end.

        Whoever lost its disk may count its lives from one again; it is told of the former ones, and passes them by.
        Else we would take it for dead as long as we live.
        """
        context, told = self._context, {sight.record.member: sight.record.version for sight in shown.sights}
        if context.leading or leader != context.leader:
            return
        held = {sight.record.member: sight for sight in context.m.mesh.state().sights}
        later = tuple(held[name] for name in sorted(held.keys() & told) if held[name].record.version > told[name])
        for part in parts(SwimState(later), _PART) if later else ():
            context.send(Channel.HELLO, leader, MeshCopy(CODECS[Channel.MESH].encode(part), b""))

    def _learn_addresses(self, state: SwimState) -> None:
        """Know whom to dial where gossip has no news: our own cluster is in no copy, of the dead it is silent.

        Of who has left as we know, an older copy says that it is there.
        """
        directory, members = self._context.directory, self._context.m.mesh.members
        for sight in state.sights:
            member, held = sight.record.member, members.get(sight.record.member)
            left = sight.record.left or (held is not None and held.record.left)
            if member == self._context.cluster:
                self._recall_own(sight.record, lives=sight.status is Status.ALIVE)
            elif not left and member not in directory.clusters:
                card = decode_cluster_card(sight.record.payload)
                if card.cluster == member:
                    directory.learn_cluster(card)
                    if not sight.status.present:  # no notice of its death comes: it was dead when we first heard of it
                        directory.lapse(card.cluster)

    def _recall_own(self, record: Record, *, lives: bool) -> None:
        """What the mesh remembers of our own cluster: its workers, and the term that its next leader has to exceed.

        Whoever held that term may be dead or gone, with the only disk that knew of it. If it was this peer, its own
        disk knew: a term is on it before anybody hears of the claim. So a disk that remembers less is an older copy,
        without what was promised since. Of a cluster's only worker nothing else shows that: it has no mates, who would
        know its life.
        """
        card = decode_cluster_card(record.payload) if record.payload else None
        if card is None or card.cluster != self._context.cluster:
            return
        if not record.left:
            self._hear_of(card.workers)
        if lives:
            self._unmet.heard_of(card.leader)
        if not self._context.leading:  # a leader is told of rivals by the membership
            election, me = self._context.m.election, self._context.me
            if card.leader == me and card.term > election.term:
                there = next((each for each in card.workers if each.peer == me), self._context.card)
                self._context.out.append(IdentityTaken(there.address or there.inside))
            else:
                self._context.run(Channel.ELECTION, election.seen(card.term, card.leader, self._context.now))

    def _hear_of(self, workers: Iterable[PeerCard]) -> None:
        """Others say who works here: of who is here we know by itself, and their word may be of a former life of it.

        It may be a lie, too: they are believed about our own cluster alone, and of no more workers than it can have.
        """
        members, directory = self._context.m.members.members, self._context.directory
        room = MAX_WORKERS - directory.count(self._context.cluster)
        for worker in workers:
            here, known = members.get(worker.peer), worker.peer in directory.peers
            if worker.cluster == self._context.cluster and (known or room > 0) and not (here and here.status.present):
                directory.learn_peer(worker)
                room -= not known

    def _told_of_cluster(self, sender: PeerId, card: ClusterCard) -> None:
        """A peer says who leads its own cluster; of ours we believe our leader, and pass it on to those we let in.

        Of another one that is news only if the claim is: a follower's card may be older than what gossip has brought.
        """
        context, directory = self._context, self._context.directory
        known, ours = directory.clusters.get(card.cluster), card.cluster == context.cluster
        news = known is None or _is_later(card, known)
        if directory.cluster_of(sender) != card.cluster or (not news and (not ours or _is_later(known, card))):
            return
        if ours and (context.leading or sender != context.leader):
            return
        directory.learn_cluster(card)
        if ours and news:
            for peer in sorted(self.greeted):
                if directory.cluster_of(peer) != context.cluster:
                    self._show_mesh(peer)


def _is_later(one: ClusterCard | None, other: ClusterCard) -> bool:
    """Whether one claim to a cluster beats another: claims go by term, then by id."""
    return one is not None and (one.term, one.leader) > (other.term, other.leader)


def _encoded(card: ClusterCard | None) -> bytes:
    return encode_card(card) if card is not None else b""


def parts(state: SwimState, size: int) -> list[SwimState]:
    """Split a view into such of at most `size` bytes of records each, or of one member; one of nobody is one part."""
    found: list[list[Sight]] = [[]]
    room = size
    for sight in state.sights:
        cost = len(sight.record.payload) + _BESIDE
        if cost > room and found[-1]:
            found.append([])
            room = size
        room -= cost
        found[-1].append(sight)
    return [SwimState(tuple(part)) for part in found]
