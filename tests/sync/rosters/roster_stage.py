"""A leader and a follower with a roster, to be told things, and what they say to each other."""

from ictp2p.machine import Send
from ictp2p.sync.rosters.devices import HOST, Device, choose
from ictp2p.sync.rosters.machine import Rosters
from ictp2p.sync.rosters.profile import RosterProfile
from ictp2p.sync.rosters.roster import (
    MatesCall,
    Roster,
    RosterProposal,
    RosterReady,
)
from ictp2p.types import PeerId

PROFILE = RosterProfile(repeat=1.0, gather=5.0, store=5.0, backoff=0.5, backoff_most=4.0)


A, B, C, D = (PeerId(letter * 32) for letter in "abcd")


STORE = "192.0.2.1:7000"


def ready(sequence=1, *, ready=True, life=1, spell=1, holds=(0, 0, ""), device=HOST, calls=False):
    return RosterReady(ready, life, spell, sequence, *holds, device, calls=calls)


def a_roster(term, number, members, devices=(), step=0):
    choice = choose(devices or [HOST] * len(members))
    return Roster(term, number, members, STORE, step, choice.library, choice.reason)


def gpu(unit, release="2.27"):
    return Device("cuda", f"host/{unit}", "H200", "nccl", release)


def sends(effects, kind=RosterProposal):
    return [effect for effect in effects if isinstance(effect, Send) and isinstance(effect.message, kind)]


def notices(effects):
    """Those about this worker's own group."""
    return [effect for effect in effects if not isinstance(effect, Send | MatesCall)]


def leading(members=(A, B, C), term=1):
    """A leads a group of `members`, each of which has acknowledged; it is time 1.0."""
    rosters = Rosters(A, 1, PROFILE)
    rosters.view(members, 0.0)
    rosters.leader(A, term, 0.0)
    rosters.wants(True, 0.0)
    for peer in members[1:]:
        rosters.receive(peer, ready(), 0.5)
    rosters.store_opened(STORE, 1, 0.5)
    for peer in members[1:]:
        rosters.receive(peer, ready(2, holds=(term, 1, A)), 1.0)
    assert rosters.roster == a_roster(term, 1, members)
    return rosters


def following(me=B, members=(A, B, C)):
    rosters = Rosters(me, 1, PROFILE)
    rosters.view(members, 0.0)
    rosters.leader(A, 5, 0.0)
    rosters.wants(True, 0.0)
    rosters.receive(A, RosterProposal(Roster(5, 2, members, STORE, 0)), 0.5)
    assert rosters.roster.generation == (5, 2)
    return rosters
