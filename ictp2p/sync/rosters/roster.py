"""What is said about the process group of a cluster: rosters, the messages that carry them, and the notices.

`rosters` has the protocol. A roster is agreed on by nobody: its leader says it, and its generation orders it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import msgspec

from ictp2p.errors import ConfigError, RemoteProtocolError
from ictp2p.machine import Message, Notice
from ictp2p.sync.rosters.devices import GLOO, HOST, Device
from ictp2p.types import Address, PeerId

Generation = tuple[int, int]
"""(term of the leader, number of the roster within the term); later is greater."""

_Count = Annotated[int, msgspec.Meta(ge=0, lt=2**62)]
_Id = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
_Library = Annotated[str, msgspec.Meta(min_length=1, max_length=128)]


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
    reason: Annotated[str, msgspec.Meta(max_length=1024)] = ""
    """Why that one, in words."""

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
    """A collective of this generation broke at the sender."""

    term: _Count
    number: _Count
    refused: Annotated[str, msgspec.Meta(max_length=128)] = ""
    """The library that did not come up, if that is how it broke."""


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
