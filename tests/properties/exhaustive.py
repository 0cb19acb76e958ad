"""Every course that a few machines can take: the real code, its messages in all orders, deaths between any two effects.

An adversary that draws (`adversary`) goes far and finds what is likely. This one goes not far, and leaves nothing out:
it visits all states that can be reached (explicit-state model checking, as in Holzmann, "The model checker SPIN", 1997;
of the code itself and not of a model of it, as in Musuvathi et al., "CMC", 2002), for so few peers, moves and deaths
that there is an end.

Three things make that cheap enough. Machines know of each other by messages alone, so what one makes of an event, in
one state of its own, is worked out once, by doing again what led to it, and looked up ever after; a state of the whole
is a few numbers. What was said can arrive at any time, late, never and, where a world says so, again; so a state is not
of interest if the same machines were seen with as much on the wire and more. And what changes nothing is no step.

Machines count as equal if they hold the same, but for chance and the order of keys in dicts. States that were seen are
remembered by their hashes of 64 bits: of a million the odds that two share one are 3 in a hundred million.

Each machine has a clock of its own, which goes on when a move lets it: to wait is a move like others.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ictp2p.errors import IctError
from ictp2p.machine import Message, Notice, Persist, Send
from tests.properties.frozen import frozen
from tests.properties.worlds import Act, Peace, World

_PEACE = 8
"""Rounds of what everybody does in peace, after which all must have come to its end."""


class State(NamedTuple):
    """One state of the whole, all of it by number; sets are the bits of an int."""

    machines: tuple[int, ...]
    disks: tuple[int, ...]
    facts: int
    moved: tuple[int, ...]
    """How often each move was made."""
    deaths: int
    wire: int
    """What can arrive: all that was ever said, or what of it has not come yet."""


class Event(NamedTuple):
    """What led to a state."""

    who: int
    what: Message | str
    sender: int | None = None
    cut: tuple[int, int] = (0, 0)
    """After how many effects of how many it died."""

    def __str__(self) -> str:
        heard = "" if self.sender is None else f" hears from {self.sender}"
        died = f"; dies after {self.cut[0]} of {self.cut[1]} effects" if self.cut[0] else ""
        return f"{self.who}{heard}: {self.what}{died}"


@dataclass(slots=True)
class _Local:
    """One state of one machine."""

    who: int
    past: _Past | int
    """What led to it, on one way of all."""
    now: float
    done: bool
    view: Any
    steps: dict[tuple[str, int], _Step | None] = field(default_factory=dict)
    idle: int = 0
    """The messages that change nothing here."""


class _Step(NamedTuple):
    """What a machine did with an event: its next state, and the effects in order, by kind and number."""

    to: int
    effects: tuple[tuple[str, int], ...]


class _Past(NamedTuple):
    """The last thing that was done to a machine, and what was before: at first its disk, by number."""

    before: _Past | int
    act: Act
    now: float


class _Outcome:
    """A state in the making: effects that one machine had, so far."""

    def __init__(self, before: State, who: int) -> None:
        self._before = before
        self._who = who
        self._wire, self._facts, self.disk = before.wire, before.facts, before.disks[who]

    def take(self, kind: str, number: int) -> None:
        """Carry one effect out."""
        if kind == "send":
            self._wire |= 1 << number
        elif kind == "fact":
            self._facts |= 1 << number
        else:
            self.disk = number

    def state(self, machine: int, deaths: int = 0) -> State:
        """Give the state in which that one is `machine`."""
        before, who = self._before, self._who
        machines = (*before.machines[:who], machine, *before.machines[who + 1 :])
        disks = (*before.disks[:who], self.disk, *before.disks[who + 1 :])
        return State(machines, disks, self._facts, before.moved, before.deaths + deaths, self._wire)


class _Table:
    """Things by number, each once."""

    def __init__(self) -> None:
        self.items: list[Any] = []
        self._numbers: dict[Hashable, int] = {}

    def number(self, key: Hashable, item: Any) -> int:
        if key not in self._numbers:
            self._numbers[key] = len(self.items)
            self.items.append(item)
        return self._numbers[key]


class Explorer:
    """All states of a world.

    Args:
        world: what is explored.
        most: states; more are an error.
        peace: what is tried from one state in `often`.
        often: 1 to try it from all.
        end: raises `AssertionError` for what must not be where nothing can happen any more.
        calm: is tried as often, with machines that it may go on with and the clock of each; raises `AssertionError` if
            they come to no good end.
        same: what a machine holds at a time, as a value: of two that are equal only one is gone on with.
    """

    def __init__(
        self,
        world: World,
        most: int,
        peace: Peace | None = None,
        often: int = 100,
        end: Callable[[Sequence[Any]], None] | None = None,
        *,
        calm: Callable[[Sequence[Any], Sequence[float]], None] | None = None,
        same: Callable[[Any, float], Hashable] = lambda machine, now: (now, frozen(machine)),
    ) -> None:
        self.world = world
        self._most = most
        self._peace = peace
        self._often = often
        self._end = end
        self._calm = calm
        self._same = same
        self._locals, self._disks, self._messages, self._facts = _Table(), _Table(), _Table(), _Table()
        self._boots: dict[tuple[int, int], int] = {}
        self._to = [0] * len(world.peers)
        """The messages to each."""
        self._seen: dict[int, tuple[int, ...]] = {}
        """By the hash of all else, what was on the wire."""
        self._ended: set[tuple[int, ...]] = set()
        """Of which machines it was tried how they end."""

    @property
    def states(self) -> int:
        """How many were visited, but for what is on the wire."""
        return len(self._seen)

    def run(self) -> Explorer:
        """Visit every state.

        Raises:
            AssertionError: one must not be, and this course leads to it.
        """
        course, open_ends = [Event(0, "starts")], [self._events(self._first())]
        try:
            while open_ends:
                event, state = next(open_ends[-1], (None, None))
                if event is None or state is None:
                    course.pop()
                    open_ends.pop()
                elif self._is_news(state):
                    course.append(event)
                    self._check(state)
                    open_ends.append(self._events(state))
        except (AssertionError, IctError) as error:
            told = "\n".join(f"  {event}" for event in course)
            raise AssertionError(f"{error}, by this course:\n{told}") from error
        return self

    def _is_news(self, state: State) -> bool:
        mark, wire = hash(state[:-1]), state.wire
        wires = self._seen.get(mark, ())
        if any(wire & other == wire for other in wires):
            return False
        self._seen[mark] = (*(other for other in wires if wire & other != other), wire)
        return True

    def _check(self, state: State) -> None:
        self.world.check(self._views(state.machines), [self._facts.items[each] for each in bits(state.facts)])
        assert self.states <= self._most, f"there are more than {self._most} states"
        if self.states % self._often == 0 and state.machines not in self._ended:
            self._ended.add(state.machines)
            self._go_on([self._locals.items[each] for each in state.machines])
        if self._end is not None and next(self._events(state), None) is None:
            self._end(self._views(state.machines))

    def _go_on(self, start: Sequence[_Local]) -> None:
        if self._peace is not None:
            self._come_to_peace(self._peace, start)
        if self._calm is not None:
            self._calm([self._again(each) for each in start], [each.now for each in start])

    def _come_to_peace(self, peace: Peace, start: Sequence[_Local]) -> None:
        """Let everybody do what it does in peace; what was on the wire is lost."""
        machines, clocks = [self._again(each) for each in start], [each.now for each in start]
        names, inbox = self.world.peers, deque[tuple[int, Send]]()
        for _ in range(_PEACE):
            for who, machine in enumerate(machines):
                clocks[who] = max(clocks[who], machine.next_timeout() or 0.0)
                inbox.extend((who, each) for each in peace.calm(who, machine, clocks[who]) if isinstance(each, Send))
            while inbox:
                sender, send = inbox.popleft()
                to = names.index(send.to)
                effects = machines[to].receive(names[sender], send.message, clocks[to])
                inbox.extend((to, each) for each in effects if isinstance(each, Send))
            views = [self.world.view(machine) for machine in machines]
            if peace.settled(views):
                return
        raise AssertionError(f"there is no end in peace, but {views}")

    def _views(self, machines: Sequence[int]) -> list[Any]:
        return [self._locals.items[each].view for each in machines]

    def _first(self) -> State:
        everybody = range(len(self.world.peers))
        disks = tuple(self._disk(self.world.disk(who)) for who in everybody)
        machines = tuple(self._boot(who, disk) for who, disk in zip(everybody, disks, strict=True))
        return State(machines, disks, 0, (0,) * len(self.world.moves), 0, 0)

    def _events(self, state: State) -> Iterator[tuple[Event, State]]:
        """Everything that can happen now, and what comes of it."""
        mortal = self.world.mortal if state.deaths < self.world.deaths else ()
        for who, number in enumerate(state.machines):
            local: _Local = self._locals.items[number]
            for event, step, before in self._steps(state, who, local):
                yield from self._outcomes(before, who in mortal, step, event)
            if who in mortal:
                yield Event(who, "dies"), self._dead(_Outcome(state, who), who)

    def _steps(self, state: State, who: int, local: _Local) -> Iterator[tuple[Event, _Step, State]]:
        if local.done:
            return
        for number in bits(state.wire & self._to[who] & ~local.idle):
            step = self._hear(local, number)
            if not step.effects and self._locals.items[step.to] is local:
                local.idle |= 1 << number
            else:
                _, sender, message = self._messages.items[number]
                left = state if self.world.again else state._replace(wire=state.wire ^ 1 << number)
                yield Event(who, message, sender), step, left
        for index, move in enumerate(self.world.moves):
            if move.who == who and state.moved[index] < move.uses:
                step = self._step(local, ("move", index), move.act, move.late if move.waits else None)
                if step is not None:
                    yield Event(who, move.label), step, state if move.uses == math.inf else _moved(state, index)

    def _outcomes(self, state: State, mortal: bool, step: _Step, event: Event) -> Iterator[tuple[Event, State]]:
        """All effects; or, if it may die, some of them and a death."""
        outcome, last = _Outcome(state, event.who), len(step.effects)
        for index, (kind, number) in enumerate(step.effects, start=1):
            outcome.take(kind, number)
            if mortal and index < last:
                yield event._replace(cut=(index, last)), self._dead(outcome, event.who)
        yield event, outcome.state(step.to)

    def _hear(self, local: _Local, number: int) -> _Step:
        _, sender, message = self._messages.items[number]
        name = self.world.peers[sender]
        step = self._step(local, ("message", number), lambda machine, now: machine.receive(name, message, now))
        assert step is not None
        return step

    def _dead(self, outcome: _Outcome, who: int) -> State:
        return outcome.state(self._boot(who, outcome.disk), deaths=1)

    def _step(self, local: _Local, key: tuple[str, int], act: Act, late: float | None = None) -> _Step | None:
        if key not in local.steps:
            local.steps[key] = self._work_out(local, act, late)
        return local.steps[key]

    def _work_out(self, local: _Local, act: Act, late: float | None) -> _Step | None:
        machine, now = self._again(local), local.now
        if late is not None:
            due = machine.next_timeout()
            if due is None:
                return None
            now = max(now, due) + late
        effects = act(machine, now)
        if effects is None:
            return None
        numbered = [each for effect in effects if (each := self._effect(local.who, effect)) is not None]
        return _Step(self._local(local.who, machine, now, _Past(local.past, act, now)), tuple(numbered))

    def _effect(self, who: int, effect: Send | Persist | Notice) -> tuple[str, int] | None:
        match effect:
            case Send(to, message) if to in self.world.peers:
                key = (self.world.peers.index(to), who, message)
                number = self._messages.number(key, key)
                self._to[key[0]] |= 1 << number
                return "send", number
            case Persist(_, value):
                return "disk", self._disk(value)
            case Notice() if (fact := self.world.fact(effect)) is not None:
                return "fact", self._facts.number(fact, fact)
        return None

    def _disk(self, value: bytes | None) -> int:
        return self._disks.number(value, value)

    def _boot(self, who: int, disk: int) -> int:
        if (who, disk) not in self._boots:
            self._boots[who, disk] = self._local(who, self._fresh(who, disk), 0.0, disk)
        return self._boots[who, disk]

    def _fresh(self, who: int, disk: int) -> Any:
        return self.world.boot(who, self._disks.items[disk])

    def _again(self, local: _Local) -> Any:
        """Make a machine that is in this state, by what led to it once."""
        acts, past = [], local.past
        while isinstance(past, _Past):
            acts.append(past)
            past = past.before
        machine = self._fresh(local.who, past)
        for _, act, now in reversed(acts):
            act(machine, now)
        return machine

    def _local(self, who: int, machine: Any, now: float, past: _Past | int) -> int:
        local = _Local(who, past, now, self.world.done(machine), self.world.view(machine))
        return self._locals.number((who, self._same(machine, now)), local)


def _moved(state: State, index: int) -> State:
    moved = (*state.moved[:index], state.moved[index] + 1, *state.moved[index + 1 :])
    return state._replace(moved=moved)


def bits(mask: int) -> Iterator[int]:
    """Give the bits of a set, lowest first."""
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest
