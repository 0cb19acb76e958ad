"""Rosters and the vendor's library that they name: who can, who refuses, who falls back."""

from ictp2p.sync.rosters.devices import GLOO
from ictp2p.sync.rosters.machine import Rosters
from ictp2p.sync.rosters.roster import (
    Breach,
    RosterFailed,
    RosterProposal,
    StoreWanted,
)
from tests.sync.rosters.roster_stage import PROFILE, STORE, A, B, C, a_roster, gpu, ready, sends


class TestLibrary:
    """Which library a roster names, and what a refusal of it changes."""

    def led(self, *devices):
        rosters = Rosters(A, 1, PROFILE)
        rosters.leader(A, 1, 0.0)
        rosters.wants(True, 0.0, devices[0])
        rosters.view([A, B, C][: len(devices)], 0.0)
        for peer, device in zip((B, C), devices[1:], strict=False):
            rosters.receive(peer, ready(device=device), 0.0)
        rosters.store_opened(STORE, 1, 0.0)
        return rosters

    def acknowledged(self, rosters, number, *, sequence):
        for peer in rosters.roster.members[1:]:
            rosters.receive(peer, ready(sequence, holds=(1, number, A), device=gpu(peer)), 1.0)

    def test_workers_with_a_device_each_get_their_library(self):
        roster = self.led(gpu(A), gpu(B), gpu(C)).roster
        assert (roster.library, roster.reason) == ("nccl", "each of its 3 workers has a cuda device of its own")

    def test_the_roster_says_it_to_everybody(self):
        rosters = Rosters(A, 1, PROFILE)
        rosters.leader(A, 1, 0.0)
        rosters.wants(True, 0.0, gpu(A))
        rosters.view([A, B], 0.0)
        rosters.receive(B, ready(device=gpu(B)), 0.0)
        (sent,) = sends(rosters.store_opened(STORE, 1, 0.0))
        follower = Rosters(B, 1, PROFILE)
        follower.wants(True, 0.0, gpu(B))
        (changed, *_) = follower.receive(A, sent.message, 0.0)
        assert changed.roster == rosters.roster
        assert changed.roster.library == "nccl"

    def test_a_refusal_has_the_same_workers_fall_back_together(self):
        rosters = self.led(gpu(A), gpu(B), gpu(C))
        self.acknowledged(rosters, 1, sequence=2)
        assert StoreWanted(2) in rosters.receive(B, RosterFailed(1, 1, Breach(refused="nccl")), 1.0)
        rosters.store_opened(STORE, 2, 1.0)
        assert rosters.roster.members == (A, B, C)
        assert (rosters.roster.library, rosters.roster.reason) == (GLOO, "nccl did not come up between these workers")

    def test_other_workers_are_asked_again(self):
        rosters = self.led(gpu(A), gpu(B), gpu(C))
        self.acknowledged(rosters, 1, sequence=2)
        rosters.receive(B, RosterFailed(1, 1, Breach(refused="nccl")), 1.0)
        rosters.view([A, B], 1.0)
        rosters.store_opened(STORE, 2, 1.0)
        assert (rosters.roster.members, rosters.roster.library) == ((A, B), "nccl")

    def test_a_collective_that_broke_refuses_nothing(self):
        rosters = self.led(gpu(A), gpu(B))
        self.acknowledged(rosters, 1, sequence=2)
        rosters.receive(B, RosterFailed(1, 1), 1.0)
        rosters.store_opened(STORE, 2, 1.0)
        assert rosters.roster.library == "nccl"

    def test_the_leaders_own_refusal_counts(self):
        rosters = self.led(gpu(A), gpu(B))
        self.acknowledged(rosters, 1, sequence=2)
        assert StoreWanted(2) in rosters.failed((1, 1), 1.0, Breach(refused="nccl"))
        rosters.store_opened(STORE, 2, 1.0)
        assert rosters.roster.library == GLOO

    def test_a_follower_says_what_it_computes_on_and_what_it_refuses(self):
        rosters = Rosters(B, 1, PROFILE)
        rosters.leader(A, 1, 0.0)
        (sent,) = rosters.wants(True, 0.0, gpu(B))
        assert sent.message.device == gpu(B)
        rosters.receive(A, RosterProposal(a_roster(1, 1, (A, B), (gpu(A), gpu(B)))), 0.0)
        _, broke = rosters.failed((1, 1), 1.0, Breach(refused="nccl"))
        assert broke.message == RosterFailed(1, 1, Breach(refused="nccl"))
