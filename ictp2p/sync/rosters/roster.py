"""What is said about the process group of a cluster: rosters, the messages that carry them, and the notices.

`rosters` has the protocol. A roster is agreed on by nobody: its leader says it, and its generation orders it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec

from ictp2p.errors import ConfigError, RemoteProtocolError
from ictp2p.machine import Message, Notice
from ictp2p.sync.rosters.devices import GLOO, HOST, Device
from ictp2p.types import Address, PeerId

Generation = tuple[int, int]
"""(term of the leader, number of the roster within the term); later is greater."""

_Count = Annotated[int, msgspec.Meta(ge=0, lt=2**62)]
_Id = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
_Words = Annotated[str, msgspec.Meta(max_length=1024)]
_Library = Annotated[str, msgspec.Meta(min_length=1, max_length=128)]


class Breach(msgspec.Struct, frozen=True, array_like=True):
    """How a group broke, as far as one of its workers knows."""

    kind: Literal["broke", "unmet", "unbuilt"] = "broke"
    """Under way; because not all came to its meeting in time; or because this worker cannot build its own part."""
    words: _Words = ""
    refused: Annotated[str, msgspec.Meta(max_length=128)] = ""
    """The library that did not come up, if that is how it broke."""


class Trouble(msgspec.Struct, frozen=True, array_like=True):
    """Why the rosters before this one broke, for those who were torn out of them by the next before they saw why."""

    times: _Count
    """How many in a row."""
    culprit: Annotated[str, msgspec.Meta(max_length=64)]
    """The worker whose own part it was that could not be built; "" if it is nobody's in particular."""
    words: _Words


class Roster(msgspec.Struct, frozen=True, array_like=True):
    """One process group: rank i is `members[i]`, and the leader is rank 0."""

    term: Annotated[int, msgspec.Meta(ge=1, lt=2**62)]
    number: Annotated[int, msgspec.Meta(ge=1, lt=2**62)]
    members: Annotated[tuple[_Id, ...], msgspec.Meta(min_length=1, max_length=4096)]
    store: Annotated[str, msgspec.Meta(min_length=1, max_length=300)]
    """`host:port` of the rendezvous store, which the leader opened."""
    step: _Count
    """The inner step at which the leader's training loop was last seen at a boundary; a hint, never trusted."""
    library: _Library = GLOO
    """What its members add up gradients with; chosen by the leader from what all of them compute on."""
    reason: _Words = ""
    """Why that one, in words."""
    trouble: Trouble | None = None
    """What broke the one before, if that is why there is a new one."""
    absent: Annotated[tuple[_Id, ...], msgspec.Meta(max_length=4096)] = ()
    """Who is left out because its training thread stands still. It hears of that here."""

    @property
    def generation(self) -> Generation:
        """Its place in the order of rosters."""
        return (self.term, self.number)

    @property
    def leader(self) -> PeerId:
        """Who proposed it."""
        return PeerId(self.members[0])


class RosterReady(Message, tag=61, frozen=True, array_like=True):
    """Where a worker stands: its answer to the leader's only question, repeated."""

    ready: bool
    life: _Count
    """Greater in each process of one peer."""
    spell: _Count
    """How many times the training thread of this life has come up."""
    sequence: _Count
    """Greater in each report of one life, so that a late one is known as such."""
    term: _Count
    """With `number` and `leader`: the newest roster that it has, zeros and "" for none."""
    number: _Count
    leader: Annotated[str, msgspec.Meta(max_length=64)]
    device: Device = HOST
    """What its training thread computes on."""
    attended: tuple[_Count, _Count] = (0, 0)
    """The newest generation whose meeting its training thread went to, or for which it is there to go."""
    calls: bool = False
    """Whether it wants into a group that makes collective calls, and not into one that trains with a policy."""

    @property
    def trainer(self) -> tuple[int, int]:
        """Which training thread wants in: another one is another member."""
        return (self.life, self.spell)

    @property
    def holds(self) -> tuple[int, int, str]:
        """Which roster the worker has."""
        return (self.term, self.number, self.leader)


class RosterProposal(Message, tag=62, frozen=True, array_like=True):
    """The leader's decision. Also sent to members that it leaves out, so that they stop waiting for the others."""

    roster: Roster


class RosterFailed(Message, tag=63, frozen=True, array_like=True):
    """A group of this generation broke at the sender."""

    term: _Count
    number: _Count
    breach: Breach = Breach()
    times: _Count = 0
    """How often in a row the sender could not build its own part."""


@dataclass(frozen=True, slots=True)
class RosterChanged(Notice):
    """Build this group, and leave every earlier one."""

    roster: Roster


@dataclass(frozen=True, slots=True)
class RosterMissed(Notice):
    """The group went on in a roster that this worker is not in: leave the old one, and wait for the next."""

    roster: Roster


@dataclass(frozen=True, slots=True)
class RosterPending(Notice):
    """At the leader: `newcomers` want in. Stop everybody at one step boundary, then call `boundary`."""

    newcomers: tuple[PeerId, ...]


@dataclass(frozen=True, slots=True)
class HeirFound(Notice):
    """At a leader whose training thread is not up: that of `heir` is, and waits for a group. To be repeated."""

    heir: PeerId


@dataclass(frozen=True, slots=True)
class MatesCall(Notice):
    """At the leader: whether others of the cluster are there to make calls, whatever its own training thread does."""

    call: bool


@dataclass(frozen=True, slots=True)
class WorkersStandStill(Notice):
    """The group goes on without these: they did not come to a meeting in which the others waited to its deadline."""

    workers: tuple[PeerId, ...]


@dataclass(frozen=True, slots=True)
class GroupAils(Notice):
    """The group has broken several times in a row, for one and the same reason as far as is known."""

    trouble: Trouble


@dataclass(frozen=True, slots=True)
class StoreWanted(Notice):
    """At the leader: open a rendezvous store, and answer with `store_opened(address, number)`."""

    number: int


def check_proposal(sender: PeerId, roster: Roster) -> None:
    """See that a proposal can be one.

    Raises:
        RemoteProtocolError: it cannot; the message says why.
    """
    if roster.leader != sender:
        raise RemoteProtocolError(f"peer {sender} proposed a roster that {roster.leader} leads")
    if len(set(roster.members)) != len(roster.members):
        raise RemoteProtocolError(f"peer {sender} proposed a roster that names a member twice: {roster.members}")
    try:
        Address.parse(roster.store)
    except ConfigError as error:
        raise RemoteProtocolError(f"peer {sender} proposed a roster without a store: {error}") from error
