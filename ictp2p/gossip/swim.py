"""Who is there: SWIM membership with Lifeguard, as a pure machine.

Das, Gupta, Motivala: "SWIM" (DSN 2002); Dadgar, Phillips, Currey: "Lifeguard" (arXiv 1707.00788); parameters and field
experience from hashicorp/memberlist. Each member probes one other per interval, so the cost per member does not depend
on the size of the group, and every crash is known to everybody in the end. Nothing here is agreement: views may differ
for as long as the network makes them, and no safety may rest on them.

What differs from the papers, and why:

- Messages go over TCP connections, direct or forwarded by others. There is no datagram to lose and so no second ping
  over TCP; a probe fails by being late. Any byte heard from the target answers a probe (`heard`): a link that bulk data
  saturates delays its ack, not its life.
- Every second probe goes to one fixed member, or to a suspect that wants confirmation (`guards`): everybody is asked
  every second interval, and a verdict has its confirmations in time, always and not only on average.
- A connection that breaks is evidence (`broken`), worth a suspicion at once and never a death: a middlebox may have
  reset it. If the host then refuses a new one, its kernel says that nobody listens, which counts as all confirmations.
- Records are signed by their owner, so only the owner raises an incarnation. An accusation in an incarnation that we do
  not know is not believed; the record that belongs to it is asked for.
- A process that was late by itself (`lagged`, or a late `handle_timeout`) does not hold it against others: the time in
  which it could not hear is not counted, in probes and suspicions alike. Thus a process that was stopped for a minute
  refutes its own death when it goes on, and buries nobody.
- The dead get a digest now and then, as the living do: otherwise two halves of a healed partition never meet again.

The machine may be *passive*: a copy of a view that another member keeps (`absorb`), which answers and probes nobody. A
leader's followers hold the mesh's view like that, and the next leader `start`s from it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from ictp2p.errors import LocalProtocolError, RemoteProtocolError
from ictp2p.gossip import antientropy
from ictp2p.gossip.health import LocalHealth
from ictp2p.gossip.ledger import Ledger
from ictp2p.gossip.messages import (
    LAST_SEQUENCE,
    Ack,
    Delta,
    Digest,
    Displaced,
    Doubled,
    Entry,
    Gossip,
    MemberCleared,
    MemberFailed,
    MemberJoined,
    MemberLeft,
    MemberSuspected,
    MemberUpdated,
    Nack,
    Ping,
    PingRequest,
    Record,
    Sight,
    Status,
    SwimMessage,
    SwimState,
)
from ictp2p.gossip.prober import Prober
from ictp2p.gossip.profile import SwimProfile
from ictp2p.gossip.table import Member
from ictp2p.machine import Effects, Message, Send

__all__ = [
    "Displaced",
    "Doubled",
    "Member",
    "MemberCleared",
    "MemberFailed",
    "MemberJoined",
    "MemberLeft",
    "MemberSuspected",
    "MemberUpdated",
    "Record",
    "Status",
    "Swim",
    "SwimMessage",
    "SwimProfile",
    "SwimState",
]


_GATHERED = 3
"""Further intervals for which details are gathered before they are passed on."""


class Swim:
    """One member's part in one group. Member ids are plain strings; the caller maps them to peers."""

    def __init__(
        self,
        me: str,
        profile: SwimProfile,
        rng: random.Random,
        *,
        seal: Callable[[Record], Record],
        verify: Callable[[Record], bool],
    ) -> None:
        self._me = me
        self._profile = profile
        self._rng = rng
        self._health = LocalHealth(profile.health_limit)
        self._ledger = Ledger(me, profile, self._health, seal, verify)
        self._table = self._ledger.table
        self._prober = Prober(me, profile, rng, self._health, self._ledger)
        self._gossip_at = self._exchange_at = self._excused = 0.0
        self._near: frozenset[str] = frozenset()
        self.members: Mapping[str, Member] = MappingProxyType(self._table.members)
        """The view, by member id. Holds this member itself exactly while it is active."""

    def __repr__(self) -> str:
        mode = f"incarnation={self.record.incarnation}" if self.record else "passive"
        return f"<Swim {self._me} {mode} present={len(self.alive())}/{len(self.members)} health={self.health}>"

    @property
    def profile(self) -> SwimProfile:
        """The numbers by which this machine works."""
        return self._profile

    @property
    def active(self) -> bool:
        """Whether this machine takes part, rather than keep a copy."""
        return self._ledger.own is not None

    @property
    def record(self) -> Record | None:
        """This member's own record, while it is active."""
        return self._ledger.own

    @property
    def health(self) -> int:
        """Lifeguard's local health score: 0 is healthy."""
        return self._health.score

    def alive(self) -> tuple[str, ...]:
        """Return who is there, suspects included, and this member too while it is active; sorted."""
        return self._table.present()

    @property
    def revision(self) -> int:
        """Grows whenever somebody comes, goes, or is thought of differently; not for a new payload."""
        return self._table.revision

    def suspects(self) -> frozenset[str]:
        """Return the members under suspicion."""
        return frozenset(name for name, member in self.members.items() if member.status is Status.SUSPECT)

    # --- coming, changing, going

    def start(self, payload: bytes, incarnation: int, now: float) -> Effects:
        """Become an active member, in `incarnation` or a higher one if that was already seen of this member.

        Where two processes begin to speak for one member in the same incarnation, neither hears of the other before
        one of them has more to say: of records with one version the first to come is held, and not compared.
        """
        self._ledger.begin(payload, incarnation, now)
        self._prober.start(now)
        self._gossip_at = self._excused = now
        effects = self._exchange(now)
        self._exchange_at = now + self._rng.random() * self._profile.push_pull_interval
        return effects

    def stop(self) -> None:
        """Become passive: keep the view without this member, answer nothing, probe nobody."""
        self._ledger.end()
        self._prober.stop()

    def publish(self, payload: bytes, now: float, *, detail: bool = False) -> Effects:
        """Replace the payload of this member's record; it spreads with the next gossip.

        Args:
            payload: all of it.
            now: seconds.
            detail: nobody waits for what is new in it, so that some may learn it only when they compare digests.

        Raises:
            LocalProtocolError: the machine is passive, or the payload is longer than `messages.MAX_PAYLOAD`.
        """
        own = self.record
        if own is None:
            raise LocalProtocolError(f"member {self._me} is passive and cannot publish a record")
        if payload != own.payload:
            self._ledger.declare(own.incarnation, own.sequence + 1, payload, now, detail=detail)
        return []

    def outbid(self, rival: Record, now: float) -> None:
        """Answer `Displaced`: it is this peer that speaks for the member, so its record has to be the newest."""
        own = self.record
        if own is not None:
            self._ledger.declare(max(own.incarnation, rival.incarnation) + 1, own.sequence, own.payload, now)

    def leave(self, now: float) -> Effects:
        """Say goodbye to everybody, and become passive. Others will not take this for a failure."""
        own = self.record
        if own is None:
            return []
        # The payload stays: whoever judges signatures may need it to know who may speak for this member.
        goodbye = Gossip((self._ledger.declare(own.incarnation, LAST_SEQUENCE, own.payload, now),))
        others = self._ledger.others()
        self.stop()
        return [Send(name, goodbye) for name in others]

    # --- what the connections show

    def meet(self, member: str, now: float) -> Effects:
        """Compare views with `member`, to which a connection has come up."""
        return [Send(member, self._ledger.digest())] if self.active and member != self._me else []

    def near(self, members: Iterable[str]) -> None:
        """Gossip with these alone, as long as one of them is there: what is sent to others takes several hops.

        News spreads as fast over a random graph of some degree as if everybody knew everybody (Fountoulakis and
        Panagiotou, "Rumor spreading on random regular graphs and expanders", 2013). Probes and digests still go to all.
        """
        self._near = frozenset(members)

    def awaits(self, member: str) -> bool:
        """Whether a sign of life of `member` would make a difference: ask before `heard`, which moves timers."""
        return self._prober.target == member

    def heard(self, member: str, now: float) -> Effects:
        """Note that bytes came from `member`: as good as an ack. Cheap enough to call for each read."""
        self._prober.heard(member, now)
        return []

    def broken(self, member: str, refused: bool, now: float) -> Effects:
        """Take the end of a connection as evidence: once when it is lost, and once more if redialing is refused.

        `refused=False`: it ended or was reset. `refused=True`: the host is up and says that nobody listens there.
        """
        known = self.members.get(member)
        if not self.active or member == self._me or known is None or not known.status.present:
            return []
        effects = self._ledger.suspect(member, known.record.incarnation, self._me, now)
        if refused:
            self._table.suspicions[member].settle(now)
        return effects + self._prober.alarm(member) if known.status is Status.ALIVE else effects

    def measured(self, member: str, srtt: float, rttvar: float) -> None:
        """Adapt the probe timeout of `member` to its round trip (seconds): srtt + 4 rttvar, as TCP does (RFC 6298)."""
        self._prober.measured(member, srtt + 4 * rttvar)

    def unmeasured(self, member: str) -> None:
        """Expect of `member` what is expected of all: the link whose round trip was measured is no more."""
        self._prober.measured(member, 0.0)

    def lagged(self, seconds: float, now: float) -> None:
        """Note that this process itself was late by `seconds`: not others' fault, and a sign of bad health."""
        lost = min(seconds, now - self._excused)
        if not self.active or not lost > self._profile.probe_timeout / 2:
            return
        self._excused = now
        self._health.note(1)
        # The answers may be here already, unread in the sockets: a probe timeout more to read them.
        grace = lost + self._profile.probe_timeout
        self._prober.postpone(grace)
        for suspicion in self._table.suspicions.values():
            suspicion.postpone(grace)

    # --- copies of the view

    def state(self) -> SwimState:
        """Return the whole view, for the passive copies that others keep."""
        return SwimState(tuple(Sight(m.record, m.status) for _, m in sorted(self.members.items())))

    def absorb(self, state: SwimState, now: float) -> Effects:
        """Take another's whole view: as it is while passive, as evidence (a death is a suspicion) while active.

        Whom an active machine does not know it has forgotten, or never met, and it need not meet anybody only to bury
        him: so it is with digests, too (`antientropy`). A dead man's record would bring him back for another funeral.
        """
        effects: Effects = []
        for sight in state.sights:
            if not self.active:
                effects += self._ledger.mirror(sight, now)
                continue
            if not sight.status.present and sight.record.member not in self.members:
                continue
            effects += self._ledger.learn(sight.record, now)
            effects += self._ledger.merge([Entry(sight.record.member, *sight.record.version, sight.status)], None, now)
        self._table.forget(now)
        return self._welcome(effects, now)

    # --- the machine

    def receive(self, sender: str, message: Message, now: float) -> Effects:
        """Take a message from another member.

        Raises:
            RemoteProtocolError: it is no message of this protocol.
        """
        if not self.active or sender == self._me:
            return []
        effects = self.heard(sender, now)
        match message:
            case Ping(number, news):
                effects += self._ledger.hear(news, sender, now)
                effects += self._prober.acknowledge(sender, number)
            case Ack(number, news):
                effects += self._prober.acked(number, now)
                effects += self._ledger.hear(news, sender, now)
            case Nack(number):
                self._prober.refused(sender, number)
            case PingRequest(number, target, news):
                effects += self._ledger.hear(news, sender, now)
                effects += self._prober.help(sender, number, target, now)
            case Gossip(news):
                effects += self._ledger.hear(news, sender, now)
            case Digest():
                effects += self._ledger.answer(message, sender, now)
            case Delta(records, verdicts, wanted):
                effects += self._ledger.hear(records, sender, now)
                effects += self._ledger.merge(verdicts, sender, now)
                effects += self._ledger.give(sender, wanted)
            case _:
                raise RemoteProtocolError(f"{type(message).__name__} from {sender} is no membership message")
        return self._welcome(effects, now)

    def handle_timeout(self, now: float) -> Effects:
        """Do what is due: verdicts, the probe, news, an exchange of digests."""
        due = self.next_timeout()
        if due is None or due > now:
            return []
        self.lagged(now - due, now)
        effects: Effects = []
        for name in self._table.overdue(now):
            effects += self._ledger.bury(name, self.members[name].record.incarnation, self._me, now)
        effects += self._prober.proceed(now)
        if self._ledger.queue and self._gossip_due() <= now:
            effects += self._gossip(now)
        if self._exchange_at <= now:
            self._table.forget(now)
            effects += self._exchange(now)
        return effects

    def next_timeout(self) -> float | None:
        """Say when `handle_timeout` is next wanted; never while passive."""
        if not self.active:
            return None
        soonest = min(self._exchange_at, self._prober.due())
        if self._ledger.queue:
            soonest = min(soonest, max(self._gossip_due(), self._ledger.news_since))
        for suspicion in self._table.suspicions.values():
            soonest = min(soonest, suspicion.deadline)
        return soonest

    # --- spreading

    def _gossip_due(self) -> float:
        """When to gossip next: details gather for some intervals, since each of many comes by itself."""
        patience = 0 if self._ledger.queue.presses else _GATHERED
        return self._gossip_at + patience * self._profile.gossip_interval

    def _gossip(self, now: float) -> Effects:
        self._gossip_at = now + self._profile.gossip_interval
        buried = [name for name in self._table.absent() if self._listens(name, now)]
        others = self._ledger.others()
        near = [name for name in others if name in self._near] or others
        audience = sorted([*near, *buried]) if buried else near
        chosen = self._rng.sample(audience, min(self._profile.gossip_fanout, len(audience)))
        messages = [(name, self._ledger.news()) for name in chosen]
        if not chosen:
            self._ledger.queue.clear()
        return [Send(name, Gossip(news)) for name, news in messages if news]

    def _listens(self, name: str, now: float) -> bool:
        """Whether somebody who is gone may be there after all, and should know what is said of it."""
        member = self.members[name]
        return member.status is Status.DEAD and now - member.since <= self._profile.gossip_to_dead

    def _exchange(self, now: float) -> Effects:
        others = self._ledger.others()
        self._exchange_at = now + antientropy.interval(self._profile.push_pull_interval, len(others) + 1)
        dead = sorted(name for name, member in self.members.items() if member.status is Status.DEAD)
        partners = [self._rng.choice(names) for names in (others, dead) if names]
        return [Send(name, self._ledger.digest()) for name in partners]

    def _welcome(self, effects: Effects, now: float) -> Effects:
        """Let newcomers be probed already in this round."""
        if self.active:
            for effect in effects:
                if isinstance(effect, MemberJoined):
                    self._prober.welcome(effect.member, now)
        return effects
