"""Which rounds were committed without us.

Clusters make the same calls in the same order, and a round carries no number of a call. So a cluster that misses one
(it was slow, or cut off) and simply went on would bring its second tensors to the others' third round, and nobody
would notice. The chain of decisions tells: every committed round that this cluster has no answer to must be reported
to the caller before it takes part again. Unless the cluster is in it: then the round is the one of the call that is
under way, or that was given up and is made again; its leader did not see the end of it, or not in time, and the answer
can still be had (`calls.answers`). Who has started since saw neither of its decisions; a mate that did shows them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from ictp2p.concurrency.threads import Threads
from ictp2p.errors import RoundMissed
from ictp2p.handle import Decided, Handle, News
from ictp2p.sync.values import Close, Open, Participant, Spec, Value, upcoming
from ictp2p.types import ClusterId, PeerId


class Unseen(msgspec.Struct, frozen=True, array_like=True):
    """A committed round that this cluster is in and has no answer to."""

    opened: Open
    close: Close
    workers: tuple[PeerId, ...]
    """Those of this cluster whose tensors are in it, as far as it is known."""


class Chronicle:
    """Follows the decisions, on the peer's thread, for the thread that makes the calls.

    Args:
        me: this peer.
        cluster: its cluster.
        threads: what it waits with.
    """

    def __init__(self, me: PeerId, cluster: ClusterId, threads: Threads | None = None) -> None:
        self._me = me
        self._cluster = cluster
        self._changed = (threads or Threads()).condition()
        self._passed = 0
        self._ended: list[Unseen] = []
        """The committed rounds of calls that are not accounted for, as far as we saw both of their decisions; for a
        newcomer, which was promised no others, those that this cluster is in."""
        self._gap = 0
        """The newest round of which we did not see both."""
        self._next: int | None = None
        self._version = 0
        """Of the shared state, as of the newest decision."""
        self._settled: int | None = None
        self.opened: Open | None = None
        """The newest attempt that was opened."""
        self._under_way = False
        """Whether it is not decided."""
        self._together: tuple[PeerId, ...] = ()
        """The workers that the newest call acts with, their leader first."""
        self._in_opened: tuple[PeerId, ...] = ()
        """Those whose tensors are in the newest attempt, if this peer brought them."""
        self._told: tuple[int, tuple[Participant, ...], tuple[PeerId, ...]] = (0, (), ())
        """The newest attempt that a leader has told of, who takes part, and whose tensors it brought."""
        self._absent = 0
        """The newest round with this cluster in it that this worker came after, though its former life may be in it."""
        self._given_up = self._void = False
        """Whether the newest call was given up, and whether what it may have brought is in the newest attempt."""

    def notice(self, news: News) -> None:
        """Take the peer's news."""
        if not isinstance(news, Decided):
            return
        value = news.value
        with self._changed:
            first = self._next is None
            skipped = 0 if self._next is None else value.round - self._next
            calls = skipped > 0 and not self._made_versions(skipped, value)
            if calls:
                self._passed = max(self._passed, value.round - 1)  # we were away
                self._gap = value.round - 1
            self._version = value.state.version
            self._next, _ = upcoming(value)
            self._under_way = isinstance(value, Open)
            if isinstance(value, Open):
                self.opened, self._void = value, self._given_up
                leads = (self._cluster, self._me) in ((p.cluster, p.leader) for p in value.participants)
                self._in_opened = self._together if leads and self._together[:1] == (self._me,) else ()
                if self._given_up and self._settled is None and self._takes_part(value):
                    self._settled = value.round - 1
            elif isinstance(value, Close) and value.committed and (calls or skipped <= 0):
                self._committed(value)
            if first and self._settled is None:
                self._gap = 0  # a newcomer finds the mesh at the end of a round, which it was in no more than in others
            self._changed.notify_all()

    @property
    def missed(self) -> int | None:
        """The newest round without us that nobody was told of yet. None for a newcomer, which was promised none."""
        with self._changed:
            return self._passed if self._settled is not None and self._passed > self._settled else None

    def refuse_if_missed(self) -> None:
        """See to it that no call goes on that the others are not at.

        Raises:
            RoundMissed: rounds were committed without us that nobody was told of yet; names the newest.
        """
        missed = self.missed
        if missed is not None:
            raise RoundMissed(f"round {missed} was decided without an answer for this cluster: the others are ahead")

    @property
    def newcomer(self) -> bool:
        """Whether this worker has not been part of any round yet: in none either that came since its call began.

        Of rounds whose decisions were not all seen nobody can tell.
        """
        with self._changed:
            return self._settled is None and not self._gap and not self._ended

    @property
    def settled(self) -> int:
        """The newest round that is accounted for; 0 for a newcomer."""
        with self._changed:
            return self._settled or 0

    @property
    def known(self) -> int:
        """The newest round that is, or is to be, accounted for; 0 for a newcomer, which was promised none."""
        with self._changed:
            return 0 if self._settled is None else max(self._settled, self._known)

    @property
    def seen(self) -> Unseen | None:
        """The round that is to be accounted for, if it is the only one, has this cluster in it, and was seen whole."""
        with self._changed:
            settled = self._settled or 0
            ended = [unseen for unseen in self._ended if unseen.close.round > settled]
            if self._gap > settled or len(ended) != 1 or not self._takes_part(ended[0].opened):
                return None
            unseen = ended[0]
            workers = unseen.workers or (self._told[2] if self._was_told(unseen) else ())
            return msgspec.structs.replace(unseen, workers=workers)

    def owe(self, round_: int, shown: Unseen | None, seconds: float, *, fresh: bool) -> None:
        """A mate has seen a round that is to be accounted for: if this worker has not, it was not there, or is late.

        Who knows the round may have its answer. Who does not has started since, and has to say that it has none, but
        where a mate has seen both of its decisions and shows them.

        Args:
            round_: its number.
            shown: the round, by a mate that has seen it whole.
            seconds: in which this worker may hear of it, being late.
            fresh: whether it has just come to its mates: what is in that round in its name may be of a former life.
        """
        self.ended(round_, seconds)
        with self._changed:
            mine = next((unseen for unseen in self._ended if unseen.close.round == round_), None)
            if fresh and (seen := mine or shown) and self._takes_part(seen.opened) and not self._acted(mine, seen):
                self._absent = round_
            self._settled = self._settled or 0
            if shown is not None:
                self._show(mine, shown)
            elif max(self._settled, self._known) < round_:
                self._passed = self._gap = round_

    @property
    def absent(self) -> int:
        """The newest round that a former life of this worker may be in, and this one is not."""
        with self._changed:
            return self._absent

    def begin(self) -> None:
        """A call begins: of what was decided before it, nothing can be its answer."""
        with self._changed:
            self._given_up = False
            if self._settled is None:
                self._ended, self._gap = [], 0

    def give_up(self) -> None:
        """The call has ended with an error: a round that it is in may be committed all the same, or has been."""
        with self._changed:
            self._given_up = self._void = True
            rounds = [unseen.opened.round for unseen in self._ended if self._takes_part(unseen.opened)]
            if self._under_way and self.opened is not None and self._takes_part(self.opened):
                rounds.append(self.opened.round)
            if self._settled is None and rounds:
                self._settled = min(rounds) - 1  # no newcomer any more: what it was in is not for its next call
            self._passed = self._known

    def settle(self, round_: int | None = None) -> None:
        """Rounds up to `round_`, or all that are known, are accounted for."""
        with self._changed:
            before, self._settled = self._settled, max(self._settled or 0, self._known if round_ is None else round_)
            if self._settled != before:
                self._told = (0, (), ())  # it was of what is accounted for now
            self._ended = [unseen for unseen in self._ended if unseen.close.round > self._settled]

    def acts(self, workers: Sequence[str]) -> None:
        """The newest call acts with these workers, leader first: what it leads from now on has their tensors."""
        with self._changed:
            self._together = tuple(map(PeerId, workers))

    def told(self, attempt: int, parts: Sequence[Participant], workers: Sequence[str]) -> None:
        """The leader of these workers, first of them, has said that an attempt has begun with what they brought.

        That it leads their cluster in an attempt says nothing: it may stand anew, with others, before they know that
        their group has ended.
        """
        with self._changed:
            self._told = attempt, tuple(parts), tuple(map(PeerId, workers))

    def answer(self, spec: Spec) -> Unseen | None:
        """The committed round for `spec` that this cluster is in and has no answer to, if it is the only such one."""
        unseen = self.seen
        return unseen if unseen is not None and unseen.opened.spec == spec else None

    def opened_after(self, before: Open | None, seconds: float) -> Open | None:
        """The next attempt that is opened after `before`, if one is within so many seconds."""
        with self._changed:
            self._changed.wait_for(lambda: self.opened is not before, seconds)
            return self.opened if self.opened is not before else None

    def ended(self, round_: int, seconds: float) -> bool:
        """Wait until a round has ended, but no longer than that; whether it has."""
        with self._changed:
            return self._changed.wait_for(lambda: self._next is not None and self._next > round_, seconds)

    def wait(self, seconds: float) -> None:
        """Wait for the next decision, but no longer than that."""
        with self._changed:
            self._changed.wait(seconds)

    def _show(self, mine: Unseen | None, shown: Unseen) -> None:
        """Take a round from a mate that has seen it whole, or whose tensors are in it if this worker knows no more."""
        if mine is None or not mine.workers:
            others = [unseen for unseen in self._ended if unseen is not mine]
            self._ended = [*others, shown if mine is None else msgspec.structs.replace(mine, workers=shown.workers)]
        self._passed = max(self._passed, shown.close.round)
        if self._gap <= shown.close.round:
            self._gap = 0

    def _is_of_a_call(self, opened: Open) -> bool:
        """Whether a round is one that this worker was promised."""
        return opened.spec.kind != "sync" and (self._settled is not None or self._takes_part(opened))

    def _was_shown(self, close: Close) -> bool:
        return any(unseen.close.round == close.round for unseen in self._ended)

    def _was_told(self, unseen: Unseen) -> bool:
        return self._told[:2] == (unseen.opened.attempt, unseen.opened.participants)

    def _acted(self, mine: Unseen | None, seen: Unseen) -> bool:
        """Whether this life of this worker has its tensors in a round, which its former one may have, too."""
        led = mine is not None and mine.workers[:1] == (self._me,)
        return led or self._was_told(seen)

    def _made_versions(self, skipped: int, value: Value) -> bool:
        """Whether rounds whose decisions were skipped were all of the shared state: each has made a version of it.

        A policy goes on from whatever it fetches when it has been away. What it missed is no call's.
        """
        closed = isinstance(value, Close) and value.committed
        return value.state.version - self._version == skipped + closed

    def _committed(self, close: Close) -> None:
        if self._counts(close):
            self._passed = max(self._passed, close.round)
        opened = self.opened
        if opened is None or (opened.round, opened.attempt) != (close.round, close.attempt):
            self._gap = close.round
        elif self._is_of_a_call(opened) and not self._was_shown(close):
            self._ended = [*self._ended, Unseen(opened, close, self._in_opened)][-2:]

    def _counts(self, close: Close) -> bool:
        """Whether a committed round has an answer that this peer does not get by leading it."""
        opened = self.opened
        if opened is None or (opened.round, opened.attempt) != (close.round, close.attempt):
            return True  # we did not see who took part, so not us
        mine = next((p for p in opened.participants if p.cluster == self._cluster), None)
        led = mine is not None and mine.leader == self._me and not self._void
        return opened.spec.kind != "sync" and not led

    @property
    def _known(self) -> int:
        """The newest committed round that we know to have to account for."""
        return max([self._passed, *(unseen.close.round for unseen in self._ended)])

    def _takes_part(self, opened: Open) -> bool:
        return any(p.cluster == self._cluster for p in opened.participants)


@dataclass(frozen=True, slots=True)
class Past:
    """What became of rounds that this worker did not see the end of."""

    chronicle: Chronicle
    peer: Handle
    """Keeps their results, and gets them from others (`calls.answers`)."""
