"""The way in: what one address does keeps nobody from the others."""

from __future__ import annotations

import asyncio
import weakref
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from ictp2p.config import Config
from ictp2p.disk import Disk, MemoryDisk
from ictp2p.edge.control import SelfConnection
from ictp2p.errors import HandshakeFailed, IctError, TurnedAway, Unreachable, VersionMismatch
from ictp2p.runtime.entrance import Entrance
from ictp2p.types import Address, PeerId
from sim.loop import SimLoop
from tests.garbage import uncollected

ODD, SOUND = Address("192.0.2.1", 7450), Address("192.0.2.2", 7450)


class Bed:
    """An entrance with two seeds: one that raises what nobody expects, and one that takes us in the third time."""

    def __init__(self, disk: Disk | None = None) -> None:
        self.dialed: list[Address] = []
        self.refusals = 2
        self.told: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: self.told.append(context["exception"]))
        rounds = SimpleNamespace(tip=None, in_touch=lambda: False)
        core: Any = SimpleNamespace(
            m=SimpleNamespace(rounds=rounds),
            directory=SimpleNamespace(peers={}),
            linked=list,
            connected=list,
        )
        config = Config.local(cluster="a", token="x" * 32, join=(str(ODD), str(SOUND)))
        self.warned: list[str] = []
        ways = self.dial, lambda: None, lambda: None
        self.entrance = Entrance(config, disk or MemoryDisk(), core, *ways, self.warned.append)

    async def dial(self, address: Address) -> PeerId:
        self.dialed.append(address)
        if address == ODD:
            raise ZeroDivisionError
        if self.dialed.count(SOUND) <= self.refusals:
            raise Unreachable(f"{address} is busy")
        self.entrance.open()
        return PeerId("1")


async def test_a_seed_that_raises_what_nobody_expects_keeps_nobody_out() -> None:
    bed = Bed()
    async with asyncio.timeout(10):
        await bed.entrance.enter()
    assert bed.told
    assert all(isinstance(error, ZeroDivisionError) for error in bed.told)


def test_who_waits_for_its_seeds_says_so_long_before_it_gives_up() -> None:
    """Regression: where a name was misspelt nothing was said for a minute."""

    async def story() -> list[str]:
        bed, loop = Bed(), asyncio.get_running_loop()
        bed.entrance._seeds = (SOUND,)
        bed.refusals = 10**9
        waits, began = bed.entrance._timeouts, loop.time()
        entering = asyncio.create_task(bed.entrance.enter())
        while not (bed.warned or entering.done()):
            await asyncio.sleep(0.1)
        assert loop.time() - began < waits.form / 3
        with pytest.raises(Unreachable):
            await entering
        return bed.warned

    with asyncio.Runner(loop_factory=SimLoop) as runner:
        (said,) = runner.run(story())
    assert said == f"no seed has let this peer in yet, and it goes on trying: {SOUND} is busy"


@pytest.mark.parametrize("turns", range(4))
async def test_who_gives_up_just_as_it_is_let_in_is_cancelled_or_in(turns: int) -> None:
    """Regression: a cancellation that came in the same turn was swallowed, and the peer went on to start."""
    bed = Bed()
    entering = asyncio.create_task(bed.entrance.enter())
    while SOUND not in bed.dialed:
        await asyncio.sleep(0)
    for _ in range(5):
        await asyncio.sleep(0)  # it waits by now
    bed.entrance.open()
    for _ in range(turns):
        await asyncio.sleep(0)
    cancelled = entering.cancel()
    await asyncio.wait([entering])
    assert entering.cancelled() == cancelled


async def test_a_peer_goes_on_looking_for_the_others_after_what_nobody_expects() -> None:
    """Regression: the first such error ended the search, and islands of one mesh never met again."""
    bed = Bed()
    bed.entrance.open()
    bed.entrance._timeouts = replace(bed.entrance._timeouts, connect=0.001)
    looking = asyncio.create_task(bed.entrance.keep_in_touch())
    async with asyncio.timeout(10):
        while bed.dialed.count(SOUND) < 3:
            await asyncio.sleep(0.001)
    looking.cancel()
    assert bed.dialed.count(ODD) >= 3


async def test_what_an_address_answered_that_is_dialed_no_more_is_not_kept() -> None:
    """Who comes back elsewhere each time has another address each time; and an error knows much."""
    bed = Bed()
    for number in range(1, 5):
        elsewhere = Address(f"192.0.2.{100 + number}", 7450)
        await bed.entrance._call_on((SOUND, elsewhere))
        assert bed.entrance._answers.keys() == {SOUND, elsewhere}


class Held:
    """What a dial works with: TLS, in a real one."""


async def test_what_a_dial_in_vain_worked_with_is_not_kept_with_its_answer() -> None:
    """Regression: each address that was dialed in vain kept all frames of its last dial as long as it is dialed."""
    bed, held = Bed(), list[weakref.ref[Held]]()

    async def dial(address: Address) -> PeerId:
        transport = Held()
        held.append(weakref.ref(transport))
        try:
            raise ConnectionResetError
        except OSError as error:
            raise Unreachable(f"{address} is busy") from error

    bed.entrance._dial = dial
    with uncollected(Held) as found:
        await bed.entrance._call_on((SOUND,))
    assert str(bed.entrance._answers[SOUND]) == f"{SOUND} is busy"
    assert [each() for each in held] == [None]
    assert not found


def anywhere(*numbers: int) -> list[Address]:
    return [Address(f"192.0.2.{number}", 7450) for number in numbers]


def leading(bed: Bed, living: dict[PeerId, Address], book: list[Address]) -> Entrance:
    """An entrance whose peer leads, is in touch with all voters, and sees these others."""
    core: Any = bed.entrance._core
    core.leading, core.connected, core.neighbours = True, lambda: [*living], lambda: [*living]
    core.m.rounds.in_touch = lambda: True
    core.m.mesh, core.m.members = SimpleNamespace(alive=tuple), SimpleNamespace(alive=lambda: tuple(living))
    core.directory = SimpleNamespace(peers=living, me=SimpleNamespace(peer="me"), clusters={}, endpoint=living.get)
    bed.entrance._book = tuple(book)
    return bed.entrance


async def test_who_misses_nobody_looks_now_and_then_where_nobody_is_known_to_be() -> None:
    """All such addresses have their turn, a few at a time; and none where the living are, by whatever address."""
    bed = Bed()
    living = {PeerId("1"): anywhere(10)[0], PeerId("2"): anywhere(11)[0]}
    entrance = leading(bed, living, anywhere(*range(10, 40)))
    entrance._answers = {SOUND: PeerId("2")}
    turns = [entrance._sought(turn) for turn in range(1, 31)]
    sought = [turn for turn in turns if turn]
    assert len(sought) == 5
    assert all(len(set(turn)) == 8 for turn in sought)
    assert {address for turn in sought for address in turn} == {ODD, *anywhere(*range(12, 40))}


async def test_addresses_that_were_kept_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """They were at each look around, every few seconds of a peer's life; most looks seek nobody."""
    disk, kept = MemoryDisk(), [Address("192.0.2.10", 7450), Address("2001:db8::1", 7450)]
    disk.save("addresses", "\n".join(map(str, kept)).encode())
    entrance = Bed(disk).entrance
    monkeypatch.setattr(Address, "parse", None)
    for _ in range(2):
        assert entrance._addresses() == (ODD, SOUND, *kept)


async def test_who_misses_nobody_has_nobody_to_look_for() -> None:
    bed = Bed()
    living = {PeerId("1"): ODD, PeerId("2"): SOUND}
    entrance = leading(bed, living, [])
    assert {entrance._sought(turn) for turn in range(1, 31)} == {()}


@pytest.mark.parametrize("seen", [(), ("1",)])
async def test_who_misses_those_whom_it_needs_looks_everywhere_each_time(seen: tuple[str, ...]) -> None:
    bed = Bed()
    entrance = leading(bed, {PeerId(name): ODD for name in seen}, anywhere(10, 11))
    core: Any = entrance._core
    core.leading, core.m.rounds.in_touch = False, lambda: not seen
    assert {entrance._sought(turn) for turn in range(1, 9)} == {(ODD, SOUND, *anywhere(10, 11))}


OTHERS = TurnedAway("their join tokens differ")
NEWER = VersionMismatch("it speaks wire versions 77 to 77")
ITSELF = SelfConnection("it is this peer")
DEAD = Unreachable("nobody answers")
REFUSED = "this peer is not let in by somebody who is there, and goes on looking for others: "


class Returning(Bed):
    """A peer that has a chain on its disk, and what each address answers it, last for ever."""

    def __init__(self, answers: dict[Address, list[IctError | str]], voters: tuple[str, ...] = ("me", "1")) -> None:
        super().__init__()
        core: Any = self.entrance._core
        self.answers, self.linked, self.joined = answers, list[PeerId](), 0
        core.card, core.linked = SimpleNamespace(peer="me"), lambda: self.linked
        core.m.rounds.tip = 1, SimpleNamespace(voters=voters)
        self.entrance._seeds, self.entrance._book = (), tuple(answers)
        self.entrance._join = self.join

    def join(self) -> None:
        self.joined += 1
        self.entrance.open()

    async def dial(self, address: Address) -> PeerId:
        said = self.answers[address]
        answer = said.pop(0) if len(said) > 1 else said[0]
        if isinstance(answer, IctError):
            raise answer
        self.linked.append(PeerId(answer))
        return PeerId(answer)


def returns(
    answers: dict[Address, list[IctError | str]],
    voters: tuple[str, ...] = ("me", "1"),
    seeds: tuple[Address, ...] = (),
) -> tuple[Returning, float, IctError | None]:
    """Have a peer resume: its bed, after how many seconds it was in or not, and why not."""

    async def story() -> tuple[Returning, float, IctError | None]:
        bed, loop = Returning(answers, voters), asyncio.get_running_loop()
        bed.entrance._seeds = seeds
        began, error = loop.time(), None
        try:
            await bed.entrance.enter()
        except IctError as raised:
            error = raised
        assert (error is None) == bool(bed.joined)
        return bed, loop.time() - began, error

    with asyncio.Runner(loop_factory=SimLoop) as runner:
        return runner.run(story())


@pytest.mark.parametrize("refusal", [OTHERS, NEWER])
def test_who_resumes_and_is_refused_by_all_is_told_so_at_once(refusal: IctError) -> None:
    """Regression: without seeds (a founder) it stayed, and logged that it had no quorum."""
    bed, seconds, error = returns({ODD: [refusal], SOUND: [refusal]})
    assert not bed.warned
    assert type(error) is type(refusal)
    assert str(error) == f"everybody who answers refuses this peer: {ODD}: {refusal}; {SOUND}: {refusal}"
    assert seconds < 1.0


@pytest.mark.parametrize("other", [DEAD, ITSELF])
def test_who_resumes_where_some_are_silent_and_the_others_refuse_is_told_so_in_time(other: IctError) -> None:
    bed, seconds, error = returns({ODD: [NEWER], SOUND: [other]})
    assert type(error) is VersionMismatch
    waits = bed.entrance._timeouts
    assert waits.form <= seconds <= waits.form + 2 * waits.connect
    assert bed.warned == [f"{REFUSED}{ODD}: {NEWER}"]


@pytest.mark.parametrize("away", range(5))
def test_a_stranger_at_an_old_address_keeps_nobody_from_those_who_come_later(away: int) -> None:
    bed, _, error = returns({ODD: [OTHERS], SOUND: [*[DEAD] * away, "1"]})
    assert error is None
    assert bed.linked == ["1"]


@pytest.mark.parametrize("answers", [[DEAD], [HandshakeFailed("too many at once")], [ITSELF]])
def test_who_is_refused_by_nobody_for_good_resumes_and_looks_on(answers: list[IctError | str]) -> None:
    bed, seconds, error = returns({ODD: answers, SOUND: [DEAD]})
    assert error is None
    assert seconds <= bed.entrance._timeouts.connect


def test_who_is_the_only_voter_is_ended_by_no_stranger() -> None:
    bed, _, error = returns({ODD: [OTHERS]}, voters=("me",))
    assert error is None
    assert bed.joined == 1


def test_who_is_refused_by_its_seeds_is_told_so_whoever_votes() -> None:
    """They are what people name today: a copy of a data folder learns so that its identity is taken."""
    _, _, error = returns({ODD: [OTHERS], SOUND: [DEAD]}, voters=("me",), seeds=(ODD,))
    assert error is OTHERS


def test_seeds_that_refuse_keep_nobody_from_those_who_welcome_it() -> None:
    bed, _, error = returns({ODD: [OTHERS], SOUND: ["1"]}, seeds=(ODD,))
    assert error is None
    assert bed.linked == ["1"]


def test_who_answers_later_and_refuses_is_told_of_once() -> None:
    """It may be the last that holds the state, so that it goes on."""

    async def story() -> list[str]:
        bed = Returning({ODD: [DEAD, NEWER], SOUND: [DEAD]})
        bed.entrance._core.connected = lambda: []  # type: ignore[method-assign]
        await bed.entrance.enter()
        assert not bed.warned
        looking = asyncio.create_task(bed.entrance.keep_in_touch())
        await asyncio.sleep(20 * bed.entrance._timeouts.connect)
        assert not looking.done()
        looking.cancel()
        return bed.warned

    with asyncio.Runner(loop_factory=SimLoop) as runner:
        assert runner.run(story()) == [f"{REFUSED}{ODD}: {NEWER}"]
