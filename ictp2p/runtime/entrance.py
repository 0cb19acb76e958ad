"""How a peer gets into its mesh: it founds it, is let in, or resumes.

Who has no chain of decisions on its disk and names no seeds founds a mesh. Who names seeds waits until one of them lets
it in, and never founds: peers that found because nobody seems to be there are how one mesh becomes two, since the
living one may merely be out of reach. So nobody is elected to found either; of peers that all wait for each other one
has to be told, by leaving out its seeds.

Who has a chain on its disk belongs to that mesh already, and nobody has to let it in. It knocks for a moment, because
a mesh that lives knows more than an old disk does, and then it resumes: it takes its place and looks for the others, by
its seeds and by the addresses that it kept. That is safe however many are missing. Nothing is founded, so there is
nothing to be found twice; and what is decided is decided by a quorum of the voters that the chain names, whose promises
are on their disks. So a mesh that was stopped whole goes on as soon as a quorum of its last voters is back.

Who resumes and is refused by everybody who answers (another token, another release) is told so by an error. But at an
address that was somebody's years ago a stranger may answer now, while the others are still down: so as long as some are
silent it asks for as long as a newcomer would, and any of ours who comes ends that. From then on refusals are told, and
end nothing: a peer that has been let in may be the last that holds the state, which no stranger may take from the mesh.
Nor may one end a peer that needs nobody, because it is the only voter; but seeds are what people name today, and count
whoever the voters are. What is told is who refused, and why.

Islands of a mesh that restarts in pieces must meet: as long as no quorum of the voters is in touch, a peer goes on
dialing every address that it knows. So does, more seldom, who leads a cluster that sees no other: the voters may all
be its own, and the others may have nowhere to dial, if it is behind a NAT and started while they were down. And who
sees some dials a few of the addresses where nobody is known to be: whoever was away may know the others only where they
were before, and those who have started anew since do not remember whom they miss, but where it was.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence

from ictp2p.config import Config
from ictp2p.core import views
from ictp2p.core.stack import Core
from ictp2p.disk import SUFFIX, Disk
from ictp2p.edge.control import SelfConnection
from ictp2p.errors import HandshakeFailed, IctError, StateError, TurnedAway, Unreachable, VersionMismatch, untraced
from ictp2p.types import Address, PeerId

_BOOK = "addresses"
_REMEMBERED = 256
"""Addresses that are kept, of those who are there before all others: any one of these leads back to all."""
_AT_ONCE = 8
"""Addresses that are dialed at a time."""
_PAUSE = 0.2
"""Seconds between two rounds through the seeds."""
_SELDOM = 6
"""Timeouts of dialing between two searches of a leader that misses nobody whom it needs."""


class Entrance:
    """One peer's way into the mesh, and back.

    Args:
        config: seeds and timeouts.
        disk: keeps addresses through a restart.
        core: says who is known, and who is connected.
        dial: opens a connection to an address and adopts it; says to whom.
        found: begins a mesh.
        join: takes this peer's place in the mesh to which it belongs.
        warn: tells people.
    """

    def __init__(
        self,
        config: Config,
        disk: Disk,
        core: Core,
        dial: Callable[[Address], Awaitable[PeerId]],
        found: Callable[[], None],
        join: Callable[[], None],
        warn: Callable[[str], object],
    ) -> None:
        self._seeds, self._folder = config.seeds, config.data_dir
        self._timeouts = config.global_timeouts
        self._disk = disk
        self._core = core
        self._dial = dial
        self._found = found
        self._join = join
        self._warn = warn
        self._inside = asyncio.Event()
        self._damaged = ""
        """The file of addresses, if it cannot be read."""
        self._book = self._kept_book()
        self._former = tuple(a for a in self._book if a not in self._seeds)
        """Whom this peer knew in a former life."""
        self._answers: dict[Address, PeerId | IctError] = {}
        """What dialing each address gave, last, of those that are still dialed."""
        self._told_of: dict[str, None] = {}
        """Refusals that people were told of."""

    def open(self) -> None:
        """This peer is in."""
        self._inside.set()

    async def enter(self) -> None:
        """Get in.

        Raises:
            Unreachable: no seed let us in within the deadline; the message says what each answered.
            TurnedAway, VersionMismatch: every seed refused us for good; or whoever answered a peer that resumes did.
        """
        if self._damaged:
            self._warn(f"{self._damaged} cannot be read: this peer goes by `join`, and by who dials it, to the others")
        if self._core.m.rounds.tip is not None:
            await self._resume()
        elif self._seeds:
            await self._be_let_in()
        else:
            self._found()
            self._join()

    async def keep_in_touch(self) -> None:
        """For as long as this peer runs: whenever it has lost the others, dial every address that it knows."""
        for turn in itertools.count(1):
            await asyncio.sleep(self._timeouts.connect)
            if self._inside.is_set():
                await self._call_on(self._sought(turn))
                self._tell_of_refusals()

    def remember(self) -> None:
        """Keep on disk where the others can be dialed: after a restart it is all that leads back to them."""
        core = self._core
        others = {
            peer: core.directory.endpoint(peer) for peer in sorted(core.directory.peers) if peer != core.card.peer
        }
        book = address_book(others, views.present_peers(core.directory, core.m.mesh, core.m.members), self._book)
        if book and book != self._book:
            self._book = book
            self._disk.save(_BOOK, "\n".join(map(str, book)).encode())

    def _kept_book(self) -> tuple[Address, ...]:
        """The addresses that are on disk. There is no promise in them, so who cannot read them does without."""
        try:
            return tuple(map(Address.parse, (self._disk.load(_BOOK) or b"").decode().split()))
        except StateError:
            self._damaged = f"{_BOOK}{SUFFIX} in data_dir {self._folder!r}"
            return ()

    def _sought(self, turn: int) -> Sequence[Address]:
        """Where to look for others now."""
        if not self._in_touch():
            return self._addresses()
        if turn % _SELDOM or not self._core.leading:
            return ()
        return self._vacant(turn // _SELDOM) if self._core.neighbours() else self._addresses()

    def _in_touch(self) -> bool:
        return bool(self._core.connected()) and self._core.m.rounds.in_touch()

    def _vacant(self, turn: int) -> Sequence[Address]:
        """Addresses where nobody is known to be, a few each turn: the dead, and those who left, may be hundreds."""
        core = self._core
        here = views.present_peers(core.directory, core.m.mesh, core.m.members)
        taken = {core.directory.endpoint(peer) for peer in here}
        vacant = [a for a in self._addresses() if a not in taken and self._answers.get(a) not in here]
        few = min(_AT_ONCE, len(vacant))
        begin = turn * _AT_ONCE % max(1, len(vacant))
        return tuple(itertools.islice(itertools.cycle(vacant), begin, begin + few))

    async def _resume(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._timeouts.connect):
                await self._call_on(self._addresses())
                if any(isinstance(answer, str) for answer in self._answers.values()):
                    await self._inside.wait()
        if not self._core.linked():
            self._check_refusals()
        await self._outlast_refusals()
        if not self._inside.is_set():
            self._join()

    async def _outlast_refusals(self) -> None:
        """Ask on for as long as all who answer refuse us, and end with what they say if nobody else comes."""
        loop = asyncio.get_running_loop()
        end = loop.time() + self._timeouts.form
        while not self._inside.is_set() and self._refused_by_all():
            refused = self._refusals()
            if len(refused) == len(self._addresses()) or loop.time() >= end:
                error = next(iter(refused.values()))
                raise type(error)(f"everybody who answers refuses this peer: {'; '.join(self._in_words(refused))}")
            self._tell_of_refusals()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._timeouts.connect):
                    await self._inside.wait()
            await self._call_on(self._addresses())

    def _refused_by_all(self) -> bool:
        """Whether all who answered, of those whom we need, refused us for good."""
        value = self._core.m.rounds.tip
        if self._core.linked() or (value is not None and set(value[1].voters) == {self._core.card.peer}):
            return False
        heard = [a for a in self._answers.values() if isinstance(a, str | HandshakeFailed | VersionMismatch)]
        others = [a for a in heard if not isinstance(a, SelfConnection)]
        return bool(others) and len(others) == len(self._refusals())

    def _refusals(self) -> dict[Address, TurnedAway | VersionMismatch]:
        """Who refused us for good, when we asked last."""
        return {a: said for a, said in self._answers.items() if isinstance(said, TurnedAway | VersionMismatch)}

    def _tell_of_refusals(self) -> None:
        """Once of each: who waits for others has to learn that some of them are there, and why they are not with it."""
        for words in self._in_words(self._refusals()):
            if words not in self._told_of:
                self._told_of[words] = None
                self._warn(f"this peer is not let in by somebody who is there, and goes on looking for others: {words}")
        while len(self._told_of) > _REMEMBERED:
            del self._told_of[next(iter(self._told_of))]

    def _in_words(self, refused: Mapping[Address, IctError]) -> list[str]:
        return [said if str(a) in (said := str(error)) else f"{a}: {said}" for a, error in refused.items()]

    async def _be_let_in(self) -> None:
        waiting = asyncio.get_running_loop().call_later(2 * self._timeouts.connect, self._say_that_it_waits)
        try:
            async with asyncio.timeout(self._timeouts.form):
                while not self._inside.is_set():
                    await self._call_on(self._seeds)
                    self._check_refusals()
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(_PAUSE):
                            await self._inside.wait()
        except TimeoutError:
            raise Unreachable(f"no seed let this peer in within {self._timeouts.form:g} s: {self._reasons()}") from None
        finally:
            waiting.cancel()

    def _say_that_it_waits(self) -> None:
        """A name that is misspelt may be seen at once, but a seed that starts later is waited for."""
        self._warn(f"no seed has let this peer in yet, and it goes on trying: {self._reasons()}")

    def _reasons(self) -> str:
        return "; ".join(self._told(seed) for seed in self._seeds)

    def _told(self, seed: Address) -> str:
        match self._answers.get(seed):
            case None:
                return f"{seed} did not answer"
            case IctError() as error:
                return str(error)
            case _:
                return f"{seed} is not in a mesh itself (a peer that is to found one has no seeds)"

    def _addresses(self) -> Sequence[Address]:
        """The seeds first: they are what people keep up to date."""
        return tuple(dict.fromkeys([*self._seeds, *self._former, *self._book]))

    async def _call_on(self, addresses: Sequence[Address]) -> None:
        """Dial those that no connected peer has, a few at a time, and no more once a lost quorum is found."""
        known = {*addresses, *self._addresses()}
        self._answers = {address: answer for address, answer in self._answers.items() if address in known}
        here = set(self._core.linked())
        met = {self._core.directory.endpoint(peer) for peer in here}
        due = [a for a in addresses if a not in met and self._answers.get(a) not in here]
        lost = not self._in_touch()
        for start in range(0, len(due), _AT_ONCE):
            if lost and self._in_touch():
                return
            await asyncio.gather(*(self._try(address) for address in due[start : start + _AT_ONCE]))

    async def _try(self, address: Address) -> None:
        try:
            self._answers[address] = await self._dial(address)
        except IctError as error:
            self._answers[address] = untraced(error)  # kept for as long as the address is dialed, which may be for good
        except Exception as error:  # what nobody expects of one address must not end the search for all
            self._answers[address] = Unreachable(f"{address}: {error!r}")
            told = {"message": f"dialing {address} failed unexpectedly", "exception": error}
            asyncio.get_running_loop().call_exception_handler(told)

    def _check_refusals(self) -> None:
        """Give up if every seed refused us for good: another token, another version.

        A seed that is busy with others, or that died while we shook hands, may let us in when we ask again.
        """
        answers = [self._answers.get(seed) for seed in self._seeds]
        final = [a for a in answers if isinstance(a, TurnedAway | VersionMismatch)]
        if final and len(final) == len(answers):
            raise final[0]


def address_book(
    others: Mapping[PeerId, Address | None], here: Collection[PeerId], former: Iterable[Address]
) -> tuple[Address, ...]:
    """The addresses to keep, at most 256: in the order given, and if they are too many of those who are `here` first.

    Args:
        others: everybody who is known, and where we can dial them, if we can.
        here: those of them who are there.
        former: the book as it was. Whoever was forgotten is in no card any more, but the other half of a mesh that was
            cut for hours is where it was: what there is room for is kept.
    """
    dialable = [(peer, address) for peer, address in others.items() if address is not None]
    if len(dialable) > _REMEMBERED:
        dialable.sort(key=lambda other: other[0] not in here)
    return tuple(dict.fromkeys([*(address for _, address in dialable), *former]))[:_REMEMBERED]
