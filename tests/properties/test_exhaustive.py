"""The search of all courses finds what only one of them leads to, and makes up none."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Container, Sequence
from dataclasses import dataclass, field

import pytest

from ictp2p.machine import Effects, Message, Notice, Persist, Send
from tests.properties.exhaustive import Explorer
from tests.properties.frozen import frozen
from tests.properties.worlds import Move, wait


class Word(Message, tag=1, frozen=True, array_like=True):
    text: str


@dataclass(frozen=True, slots=True)
class Heard(Notice):
    text: str


@dataclass
class Listener:
    """Remembers what it hears, in order, and keeps the last of it."""

    heard: list[str] = field(default_factory=list)
    timer: float | None = None

    def receive(self, sender: str, message: Word, now: float) -> Effects:
        self.heard.append(message.text)
        return [Persist("last", message.text.encode()), Heard(message.text)]

    def handle_timeout(self, now: float) -> Effects:
        self.heard.append(f"{now:g} s")
        self.timer = None
        return []

    def next_timeout(self) -> float | None:
        return self.timer


class Talk:
    """One who may say a word and another one, and one who listens to either once."""

    peers = ("speaker", "listener")

    def __init__(
        self, *words: str, again: bool = False, deaths: int = 0, mortal: Container[int] = (0, 1), timer: bool = False
    ) -> None:
        said: Effects = [Send("listener", Word(word)) for word in words]
        self.moves: Sequence[Move] = [Move("speaks", 0, lambda machine, now: said), *([wait(1)] * timer)]
        self.again = again
        self.deaths = deaths
        self.mortal = mortal
        self._timer = 2.5 if timer else None
        self.seen: set[tuple[str, ...]] = set()
        """What the listener remembers, in every state; then what has been heard by any life of it."""

    def disk(self, who: int) -> bytes | None:
        return None

    def boot(self, who: int, disk: bytes | None) -> Listener:
        return Listener([] if disk is None else [f"once {disk.decode()}"], self._timer)

    def done(self, machine: Listener) -> bool:
        return len(machine.heard) == 3

    def view(self, machine: Listener) -> tuple[str, ...]:
        return tuple(machine.heard)

    def fact(self, notice: Notice) -> str | None:
        return notice.text if isinstance(notice, Heard) else None

    def check(self, views: Sequence[tuple[str, ...]], facts: Sequence[str]) -> None:
        self.seen.add((*views[1], "|", *sorted(facts)))


def seen(world: Talk) -> set[str]:
    Explorer(world, most=1000).run()
    return {" ".join(each) for each in world.seen}


def test_what_is_said_comes_in_any_order_or_never() -> None:
    assert seen(Talk("a", "b")) == {"|", "a | a", "b | b", "a b | a b", "b a | a b"}


def test_what_can_come_again_does_until_that_is_of_no_interest() -> None:
    assert seen(Talk("a", again=True)) == {"|", "a | a", "a a | a", "a a a | a"}


def test_a_death_comes_between_any_two_effects_and_leaves_what_is_on_the_disk() -> None:
    assert seen(Talk("a", deaths=1, mortal=[1])) == {"|", "a | a", "once a |", "once a | a"}


def test_a_speaker_that_dies_has_said_all_some_or_nothing_and_speaks_no_more() -> None:
    assert seen(Talk("a", "b", deaths=1, mortal=[0])) == seen(Talk("a", "b"))


def test_time_passes_when_somebody_waits() -> None:
    assert seen(Talk("a", timer=True)) == {"|", "2.5 s |", "a | a", "a 2.5 s | a", "2.5 s a | a"}


class Strict(Talk):
    def check(self, views: Sequence[tuple[str, ...]], facts: Sequence[str]) -> None:
        assert views[1] != ("b", "a"), "b before a"


def test_the_course_is_told_that_leads_to_what_must_not_be() -> None:
    course = r"by this course:\n  0: starts\n  0: speaks\n  1 hears from 0: .*'b'.*\n  1 hears from 0: .*'a'.*$"
    with pytest.raises(AssertionError, match=course):
        Explorer(Strict("a", "b"), most=1000).run()


def test_more_states_than_were_thought_of_are_an_error() -> None:
    with pytest.raises(AssertionError, match="more than 3 states"):
        Explorer(Talk("a", "b"), most=3).run()


def test_who_holds_the_same_is_the_same_and_who_holds_more_is_not() -> None:
    assert frozen(Listener(["a"])) == frozen(Listener(["a"])) != frozen(Listener(["a", "b"]))
    assert frozen({1: {"x"}, 2: [3]}) == frozen({2: [3], 1: {"x"}}) != frozen({1: {"x"}, 2: [4]})
    assert frozen(deque([1])) == frozen(deque([1])) != frozen(deque([2]))
    one = Listener()
    assert frozen([one, one]) != frozen([one, Listener()])


def test_what_cannot_be_seen_is_not_taken_for_the_same() -> None:
    with pytest.raises(TypeError, match="what a array holds cannot be seen"):
        frozen([array("b", b"x")])
