"""The safety rules of ictp2p, each broken on purpose, with the tests that must notice.

A test that passes proves little until it has been seen to fail. Each `Mutation` replaces one piece of text, which
stands exactly once in its file, by code that breaks one rule and nothing else; the selection must then fail. The
killers are chosen to be certain: tests with fixed inputs, or searches under a fixed seed whose target is dense.

When code moves, its entry moves with it: text that is not found is an error, not a mutation that was survived.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Mutation:
    """One way to break one rule."""

    name: str
    rule: str
    """What the present code guarantees, in words."""
    file: str
    """Relative to the root of the source."""
    old: str
    new: str
    killers: tuple[str, ...]
    """Pytest node ids, relative to `tests`, of which at least one must fail."""


_ROUTING: Final = (
    Mutation(
        "feasibility-not-strict",
        "An offer is taken only if it is strictly better than all that was advertised: equals never choose each other.",
        "ictp2p/routing/sources.py",
        "return mine is None or offer.better_than(mine)",
        "return mine is None or not mine.better_than(offer)",
        ("routing/test_sources.py::test_an_equal_distance_is_not_feasible",),
    ),
    Mutation(
        "feasibility-ignored",
        "A route that may lead back through us is not used, however short it looks.",
        "ictp2p/routing/table.py",
        "            if closer and self._sources.feasible(key, offer):",
        "            if closer:",
        ("routing/test_babel.py::test_the_first_request_asks_few_and_its_repeat_asks_all",),
    ),
    Mutation(
        "pure-widest-metric",
        "Extending a path makes it strictly worse; the widest path's metric does not, and never settles.",
        "ictp2p/routing/algebra.py",
        "return min(INFINITY, metric + cost)",
        "return max(metric, cost)",
        ("routing/test_algebra.py::test_extending_a_path_makes_it_strictly_worse",),
    ),
    Mutation(
        "no-seqno-retry",
        "A request for a fresh sequence number is repeated until it is answered: the first may be lost.",
        "ictp2p/routing/requests.py",
        "need.due = now + self._profile.repeat_after(need.asked)",
        "need.due = now + 1e9",
        (
            "routing/test_requests.py::test_a_need_is_repeated_for_as_long_as_it_lasts",
            "routing/test_invariants.py::test_retry_finds_the_way_when_the_first_requests_are_lost",
        ),
    ),
    Mutation(
        "advertised-but-not-noted",
        "What is told to a neighbour binds us: it is in the source table before it leaves.",
        "ictp2p/routing/announcer.py",
        "self._sources.advertise(line.key, distance, now)",
        "pass",
        ("routing/test_announcer.py::test_whatever_leaves_is_in_the_source_table_first",),
    ),
    Mutation(
        "own-route-believed",
        "Nobody else can tell a cluster where it is.",
        "ictp2p/routing/babel.py",
        "            if advert.destination == self.me:\n",
        "            if not advert.destination:\n",
        ("routing/test_babel.py::test_our_own_route_is_never_believed",),
    ),
    Mutation(
        "feasibility-forgotten-while-told",
        "A feasibility distance lives for as long as a neighbour may hold what it was told.",
        "ictp2p/routing/sources.py",
        "            if not stands(key):\n",
        "            if key:\n",
        ("routing/test_sources.py::test_a_distance_lives_until_it_is_taken_back_and_a_lifetime_more",),
    ),
    Mutation(
        "gap-unnoticed",
        "An update that was dropped on the way shows as a gap, and everything is asked for again.",
        "ictp2p/routing/neighbours.py",
        "            if number == self._number + 1:\n",
        "            if number >= 0:\n",
        ("routing/test_neighbours.py::test_who_goes_on_counting_is_trusted_longer_and_a_gap_is_asked_about_at_once",),
    ),
    Mutation(
        "whisper-never-set-right",
        "A neighbour that alone was told something else than all others is set right.",
        "ictp2p/routing/announcer.py",
        "sorted(self._dirty | self._drifted | self._whispered)",
        "sorted(self._dirty | self._drifted)",
        ("routing/test_announcer.py::test_who_alone_was_told_something_else_is_set_right",),
    ),
)

_CONTROL_PLANE: Final = (
    Mutation(
        "no-ring",
        "A sparse mesh stays connected whichever three clusters fail.",
        "ictp2p/core/overlay.py",
        "for offset in range(-BESIDE, BESIDE)]",
        "for offset in range(0)]",
        ("core/test_overlay.py::test_nobody_has_fewer_neighbours_than_the_ring_gives",),
    ),
    Mutation(
        "parting-taken-for-death",
        "The end of a connection that both sides gave up is evidence of nothing.",
        "ictp2p/core/stack.py",
        "            if not agreed:\n",
        "            if peer:\n",
        ("core/test_stack.py::test_a_large_mesh_is_sparse_and_yet_everybody_knows_and_reaches_everybody",),
    ),
    Mutation(
        "timeout-not-asked-again",
        "A machine that got an input is asked anew when it wants to be called.",
        "ictp2p/core/timetable.py",
        "        self._stale[channel] = None\n",
        "        pass\n",
        ("core/test_timetable.py",),
    ),
)

_BULK: Final = (
    Mutation(
        "dialed-after-close",
        "A connection that was being dialed when its pool was closed is closed too: nobody else would.",
        "ictp2p/bulk/pool.py",
        "        if self._closed:  # while it was dialed: nobody would end it\n",
        "        if False:\n",
        ("bulk/test_pool.py::test_a_ticket_whose_dial_ends_after_the_pool_was_closed_leaves_nothing_open",),
    ),
    Mutation(
        "winner-forgotten",
        "A way that won is given back if whoever asked for it was cancelled meanwhile.",
        "ictp2p/bulk/ways.py",
        "        await _end(trying, spare)\n        raise",
        "        raise",
        ("bulk/test_ways.py::test_who_is_cancelled_while_the_others_end_gives_back_what_was_won",),
    ),
    Mutation(
        "probe-without-end",
        "A probe ends after its seconds, however slow the link.",
        "ictp2p/bulk/streams.py",
        "if self._stopped or self._clock() >= self._until:",
        "if self._stopped:",
        ("bulk/test_streams.py",),
    ),
    Mutation(
        "round-shares-its-links-with-probes",
        "When a round opens, the probes that are under way end.",
        "ictp2p/async_peer.py",
        "self.bulk.stop_probes()",
        "pass",
        ("test_async_peer.py::test_a_round_ends_the_probes_that_hold_its_links",),
    ),
    Mutation(
        "probe-cut-short-taken-in-full",
        "What a probe that was cut short has measured is a lower bound.",
        "ictp2p/bulk/desk.py",
        "limited or bool(header.first)",
        "limited",
        ("bulk/test_hub.py::test_a_probe_that_is_cut_short_is_a_lower_bound_for_both_ends",),
    ),
    Mutation(
        "silent-way-holds-up-the-next",
        "A way to a peer that never answers does not hold up the next one.",
        "ictp2p/bulk/ways.py",
        "_succeeded(trying, reasons, head_start)",
        "_succeeded(trying, reasons, None)",
        ("bulk/test_ways.py::test_a_way_that_never_answers_holds_up_no_other",),
    ),
)

_GOSSIP: Final = (
    Mutation(
        "long-sample-is-one-of-many",
        "A full-speed transfer that lasted tells of a changed link alone: the next round is planned on it.",
        "ictp2p/gossip/links.py",
        "and seconds >= self._profile.long and",
        "and seconds < 0.0 and",
        ("gossip/test_links.py::TestBandwidth::test_or_after_one_that_lasted",),
    ),
    Mutation(
        "long-wait-taken-for-a-slow-link",
        "A transfer that waited for its application, however long, never lowers an estimate.",
        "ictp2p/gossip/links.py",
        "if app_limited and known is not None and rate <= known:",
        "if app_limited and known is not None and rate <= known and seconds < 5.0:",
        ("gossip/test_links.py::TestBandwidth::test_an_app_limited_transfer_never_lowers_an_estimate",),
    ),
    Mutation(
        "helpers-drawn-at-random",
        "Helpers are a shuffle of all who can help: the only one of a small group is never missed.",
        "ictp2p/gossip/prober.py",
        "return tuple(self._rng.sample(able, min(self._profile.helpers, len(able))))",
        "drawn = {self._rng.choice(self._ledger.others()) for _ in range(self._profile.helpers)}\n"
        "        return tuple(sorted(drawn.intersection(able)))",
        ("gossip/test_swim.py::test_only_helper_of_three_is_always_asked",),
    ),
    Mutation(
        "dead-merged-as-dead",
        "A death that another view reports is a suspicion here: healed halves must not bury each other.",
        "ictp2p/gossip/ledger.py",
        "                effects += self.suspect(line.member, line.incarnation, self._me, now)\n",
        "                act = self.bury if line.status is Status.DEAD else self.suspect\n"
        "                effects += act(line.member, line.incarnation, self._me, now)\n",
        ("gossip/test_swim.py::test_dead_merges_as_suspect_on_exchange",),
    ),
    Mutation(
        "forged-record-believed",
        "A record counts only under its owner's signature.",
        "ictp2p/gossip/ledger.py",
        "        if not self._verify(record):\n            return []\n        self._spread(record, now)\n",
        "        self._spread(record, now)\n",
        ("gossip/test_swim.py::test_forged_and_unsigned_records_are_ignored",),
    ),
    Mutation(
        "suspicion-cleared-by-old-news",
        "Only a greater incarnation clears a suspicion: a new payload may have left before the crash.",
        "ictp2p/gossip/table.py",
        "elif known is None or record.incarnation > known.record.incarnation:",
        "elif known is None or record.version > known.record.version:",
        ("gossip/test_swim.py::test_new_payload_in_the_accused_incarnation_clears_nothing",),
    ),
    Mutation(
        "reset-is-death",
        "The end of a connection is a suspicion and never a death.",
        "ictp2p/gossip/swim.py",
        "        if refused:\n            self._table.suspicions[member].settle(now)\n",
        "        if not refused:\n"
        "            effects += self._ledger.bury(member, known.record.incarnation, self._me, now)\n",
        ("gossip/test_swim.py::test_broken_connection_is_a_suspicion_and_never_a_death",),
    ),
)

_ELECTION: Final = (
    Mutation(
        "claim-before-its-term-is-on-disk",
        "A claim is persisted before it is sent, or a restarted peer could claim one term twice.",
        "ictp2p/gossip/election.py",
        "return [*persist, LeaderChanged(self.me, self.term), *self._tell(self._alive)]",
        "return [*self._tell(self._alive), LeaderChanged(self.me, self.term), *persist]",
        ("gossip/test_election.py::TestOnePeer::test_the_term_is_on_disk_before_the_claim_leaves",),
    ),
    Mutation(
        "tie-of-a-term-unbroken",
        "Of two claims of one term the higher id wins at everybody.",
        "ictp2p/gossip/election.py",
        "if (term, leader) <= self._knowledge():",
        "if term <= self.term:",
        ("gossip/test_election.py::TestOnePeer::test_in_one_term_the_higher_id_wins",),
    ),
    Mutation(
        "office-outlives-its-process",
        "Who hears of its office of a former life claims anew: (term, leader) names one life.",
        "ictp2p/gossip/election.py",
        "            return [*persist, *self._claim(now)]\n        self._leader, self._attended",
        "            persist = [*persist]\n        self._leader, self._attended",
        ("gossip/test_election.py::TestOnePeer::test_an_office_does_not_outlive_its_process",),
    ),
    Mutation(
        "lower-claim-to-a-held-term-obeyed",
        "Who held a term in a former life answers a lower claim to it by a higher term: others remember its own.",
        "ictp2p/gossip/election.py",
        "if leader == self.me or (term == self._held and leader < self.me):",
        "if leader == self.me:",
        (
            "gossip/test_election.py::TestOnePeer::test_who_held_a_term_in_a_former_life_claims_above_a_lower_claim_to_it",
        ),
    ),
    Mutation(
        "every-newcomer-shown-alone",
        "Mates are shown many changes of the mesh together: one showing for each would be N times N records.",
        "ictp2p/core/meetings.py",
        "if self._context.leading and now < self._shown_at + _SHOWING:",
        "if self._context.leading and now < self._shown_at:",
        ("core/test_stack.py::test_many_who_come_at_once_are_shown_to_the_mates_together_and_nobody_is_left_out",),
    ),
    Mutation(
        "own-term-not-recalled",
        "A newcomer learns from the mesh which term its cluster has reached: bound terms never fall.",
        "ictp2p/core/meetings.py",
        "        if not self._context.leading:  # a leader is told of rivals by the membership\n",
        "        if not self._context.dirty and self._context.leading:\n",
        ("sim/test_world.py::test_a_cluster_s_terms_go_on_though_whoever_knew_the_last_one_is_dead",),
    ),
    Mutation(
        "suspicion-deposes",
        "A leader that is only suspected keeps its office.",
        "ictp2p/gossip/election.py",
        "return self.in_office or self._leader in self._alive",
        "return self.in_office or self._leader in {*self._alive} - self._suspects",
        ("gossip/test_election.py::TestOnePeer::test_a_suspected_leader_stays",),
    ),
)

_AGREEMENT: Final = (
    Mutation(
        "quorum-over-gossip-view",
        "A quorum is one of decided voters, never of those who are believed to be alive.",
        "ictp2p/sync/agreement.py",
        "        chosen = self._proposer.chosen\n",
        "        chosen, campaign = self._proposer.chosen, self._proposer._campaign\n"
        "        believed = [v for v in self._acceptor.voters if v not in self._suspects]\n"
        "        if campaign is not None and campaign.value is not None and quorum(believed, campaign.acceptances):\n"
        "            chosen = campaign.value\n",
        ("sync/test_rounds.py::test_a_minority_waits_says_so_and_applies_nothing",),
    ),
    Mutation(
        "promise-not-on-disk",
        "A promise survives the process that made it.",
        "ictp2p/sync/acceptor.py",
        "        self.promised = ballot\n        return self.persist()\n",
        "        forgetful = self.persist()\n        self.promised = ballot\n        return forgetful\n",
        ("sync/test_agreement.py::test_a_promise_outlives_the_process",),
    ),
    Mutation(
        "promise-told-before-it-is-on-disk",
        "A promise is on disk before anybody hears of it.",
        "ictp2p/sync/agreement.py",
        "return [persist, Send(sender, answer)]",
        "return [Send(sender, answer), persist]",
        ("sync/test_agreement.py::test_a_promise_and_an_acceptance_are_on_disk_before_they_are_told",),
    ),
    Mutation(
        "no-fsync",
        "What `save` has returned from survives a power cut: data, rename and directory are synced.",
        "ictp2p/disk.py",
        "        os.fsync(file.fileno())\n",
        "",
        ("test_disk.py::test_a_value_is_synced_before_it_replaces_the_old_one_and_the_directory_after",),
    ),
    Mutation(
        "accepted-value-ignored",
        "A proposer that finds an accepted value proposes that one, for it may be decided already.",
        "ictp2p/sync/proposer.py",
        "return self._ask(bound.value if bound.accepted > NO_BALLOT else self.wish, now)",
        "return self._ask(self.wish, now)",
        ("sync/test_agreement.py::test_an_accepted_value_binds_later_proposers",),
    ),
    Mutation(
        "ballot-one-for-everybody",
        "Only the author of the last decision may skip the first phase.",
        "ictp2p/sync/proposer.py",
        "return ballot == (_OWNED, tip.author)",
        "return ballot.number == _OWNED",
        ("sync/test_agreement.py::test_ballot_one_belongs_to_the_author_alone",),
    ),
    Mutation(
        "accepts-below-its-promise",
        "An acceptor refuses every ballot below the one that it promised.",
        "ictp2p/sync/acceptor.py",
        "        if ballot < self.promised:\n            return None\n        self.promised = self.accepted = ballot\n",
        "        self.promised = self.accepted = ballot\n",
        ("sync/test_agreement.py::test_a_promise_outlives_the_process",),
    ),
    Mutation(
        "half-is-a-quorum",
        "Exactly half of the voters decide only with the first of them: any two quorums meet.",
        "ictp2p/sync/values.py",
        "(2 * present == len(voters) > 0 and voters[0] in ids)",
        "(2 * present == len(voters) > 0)",
        ("sync/test_values.py::test_any_two_quorums_intersect",),
    ),
    Mutation(
        "answer-of-another-slot-counts",
        "An acceptance counts for the slot that it is about and no other.",
        "ictp2p/sync/agreement.py",
        "return slot == self.slot + 1 and sender in self._acceptor.voters",
        "return sender in self._acceptor.voters",
        ("sync/test_agreement.py::test_an_answer_about_an_earlier_slot_does_not_count_for_this_one",),
    ),
)

_ROUNDS: Final = (
    Mutation(
        "digests-outvoted",
        "Two different digests abort the attempt; a majority does not make the other one right.",
        "ictp2p/sync/ballot_box.py",
        "if len(set(votes.values())) > 1:",
        "if len(set(votes.values())) > len(opened.participants):",
        ("sync/test_rounds.py::test_different_digests_abort_and_the_odd_one_out_is_barred_in_the_end",),
    ),
    Mutation(
        "commit-without-majority",
        "COMMIT needs the votes of more than half of the participants.",
        "ictp2p/sync/ballot_box.py",
        "if 2 * len(votes) > len(opened.participants):",
        "if votes:",
        ("sync/test_rounds.py::test_an_attempt_without_a_majority_ends_at_the_hard_deadline",),
    ),
    Mutation(
        "rest-left-behind-by-a-late-majority",
        "Who is a little later than a majority that was itself late still gets into the commit.",
        "ictp2p/sync/ballot_box.py",
        "took * (1.0 + profile.patience)",
        "0.0 * took",
        ("sync/test_rounds.py::test_who_votes_within_that_share_is_in",),
    ),
    Mutation(
        "rest-waited-for-without-end",
        "Who has not voted is not waited for past the hard deadline, however late the majority was.",
        "ictp2p/sync/ballot_box.py",
        "return since + min(soft, opened.deadline)",
        "return since + soft",
        ("sync/test_rounds.py::test_the_rest_gets_a_share_of_what_the_majority_needed",),
    ),
    Mutation(
        "vote-of-another-attempt-counts",
        "A verdict counts for exactly the attempt that it is about.",
        "ictp2p/sync/ballot_box.py",
        "if v is not None and (v.round, v.attempt) == number}",
        "if v is not None and v.round == opened.round}",
        ("sync/test_rounds.py::test_a_vote_on_an_earlier_attempt_does_not_count",),
    ),
    Mutation(
        "second-verdict-replaces-the-first",
        "The first verdict on an attempt stays: a vote once given is not taken back.",
        "ictp2p/sync/ballot_box.py",
        "if known is None or (known.round, known.attempt) < (verdict.round, verdict.attempt):",
        "if known is None or (known.round, known.attempt) <= (verdict.round, verdict.attempt):",
        ("sync/test_rounds.py::test_the_newest_attempts_first_verdict_counts",),
    ),
    Mutation(
        "abort-applied",
        "Parameters change only after a decided COMMIT.",
        "ictp2p/sync/participant.py",
        "            if not value.committed:\n                return [RoundAborted(bound, value)]\n",
        "",
        ("sync/test_rounds.py::test_an_attempt_without_a_majority_ends_at_the_hard_deadline",),
    ),
    Mutation(
        "applied-before-commit",
        "A participant holds its result back until the decision, whatever it voted itself.",
        "ictp2p/sync/outer_round.py",
        "            case _:\n                weights.state.rollback()\n",
        "            case _:\n                if weights.state.sealed:\n"
        "                    weights.commit(progress.version + 1)\n",
        ("sync/test_policy.py::test_an_aborted_round_leaves_everything_as_it_was_to_the_bit",),
    ),
    Mutation(
        "stale-base-takes-part",
        "A contribution that starts from another state than the agreed one is not reduced with the others.",
        "ictp2p/sync/coordinator.py",
        "            and not _stale(ready, tip)\n",
        "",
        ("sync/test_rounds.py::test_a_stale_ready_on_the_wire_is_neither_used_nor_waited_for",),
    ),
    Mutation(
        "leaves-on-old-news",
        "A leaver goes once the coordinator knows: else it may be made a voter at the moment at which it goes.",
        "ictp2p/sync/rounds.py",
        "self._released = (self.me not in voters and excused) or (self._in_office and alone)",
        "self._released = self.me not in voters or (self._in_office and alone)",
        ("sync/test_rounds.py::test_a_leaver_that_was_away_is_let_go_only_once_nobody_will_count_on_it_again",),
    ),
    Mutation(
        "restored-by-a-minority",
        "An older state takes the place of the agreed one only once a quorum of the voters said that they lack that.",
        "ictp2p/sync/restore.py",
        "if not quorum(tip.voters, known):",
        "if not known:",
        (
            "sync/test_restore.py::test_nothing_is_proposed_before_a_quorum_of_the_voters_has_said_what_it_holds",
            "sync/test_restore.py::test_an_answer_counts_only_for_a_while",
        ),
    ),
    Mutation(
        "restored-without-patience",
        "While a holder may come back, the mesh waits for it.",
        "ictp2p/sync/restore.py",
        "        if now < due:\n",
        "        if now < self._since:\n",
        ("sync/test_restore.py::test_a_holder_that_returns_begins_the_time_anew",),
    ),
    Mutation(
        "the-dead-hold-states",
        "What a dead worker held when it was asked is not to be had.",
        "ictp2p/sync/restore.py",
        "if a[0] >= fresh and self._sight.lives(p)}",
        "if a[0] >= fresh}",
        ("sync/test_restore.py::test_the_word_of_the_dead_does_not_count",),
    ),
    Mutation(
        "version-numbers-go-back",
        "A version has one digest for ever: what is restored gets a new number.",
        "ictp2p/sync/values.py",
        "if value.state.version != lost + 1 or not value.state.providers:",
        "if not value.state.providers:",
        ("sync/test_restore.py::test_a_restore_that_cannot_be_is_refused",),
    ),
    Mutation(
        "equal-bytes-are-one-base",
        "A contribution whose base was restored is brought anew: it may be in a version between the two.",
        "ictp2p/sync/participant.py",
        "if c.base is not None and same(c.base, tip.state):",
        "if c.base is not None and c.base.digest == tip.state.digest:",
        ("sync/test_restore.py::test_a_contribution_does_not_stand_through_a_restore_of_its_own_base",),
    ),
    Mutation(
        "lost-versions-keep-contributions",
        "What was brought to a version that died is in none, and is brought again.",
        "ictp2p/sync/contributors.py",
        "self._clusters.update(dict.fromkeys(passed, frozenset()))",
        "pass",
        ("sync/test_contributors.py::test_what_was_in_a_version_that_died_is_in_none",),
    ),
    Mutation(
        "resumes-only-if-let-in",
        "Who has a chain on its disk belongs to that mesh, though nobody is there to let it in.",
        "ictp2p/entrance.py",
        "if self._core.m.rounds.tip is not None:",
        "if self._core.m.rounds.tip is not None and not self._seeds:",
        ("sim/test_resume.py::test_a_mesh_that_was_stopped_whole_resumes_its_chain",),
    ),
    Mutation(
        "stops-looking-for-the-others",
        "Who is out of touch with a quorum of the voters dials every address that it knows, for as long as it runs.",
        "ictp2p/entrance.py",
        "if self._inside.is_set() and (alone",
        "if not self._inside.is_set() and (alone",
        (
            "sim/test_resume.py::test_clusters_that_cannot_be_dialed_find_the_heir_of_the_only_leader_that_they_knew",
            "sim/test_resume.py::test_islands_of_a_mesh_that_restarts_in_pieces_meet",
        ),
    ),
    Mutation(
        "bound-in-another-term",
        "An attempt binds a leader in one term: elected anew, it does not serve the old one's round.",
        "ictp2p/sync/participant.py",
        "if (c.cluster, c.term, c.spec) != (part.cluster, part.term, opened.spec):",
        "if (c.cluster, c.spec) != (part.cluster, opened.spec):",
        ("sync/test_rounds.py::test_an_attempt_of_another_term_is_not_served",),
    ),
    Mutation(
        "deposed-leader-obeyed",
        "A process group that a deposed leader proposes is not joined.",
        "ictp2p/sync/rosters.py",
        "if (roster.term, sender) < (self._office.term, self._office.leader):",
        "if (roster.term, sender) < (0, self._office.leader):",
        ("sync/test_rosters.py::TestWorker::test_a_deposed_leaders_proposal_is_ignored",),
    ),
    Mutation(
        "refused-library-named-again",
        "Workers between whom a collective library did not come up are not asked to use it together again.",
        "ictp2p/sync/rosters.py",
        "library for who, library in self._refusals if who == frozenset(members)",
        "library for who, library in self._refusals if who == members",
        ("sync/test_rosters.py::TestLibrary::test_a_refusal_has_the_same_workers_fall_back_together",),
    ),
    Mutation(
        "library-on-a-shared-device",
        "A vendor's library is used only where every worker has a device of its own.",
        "ictp2p/sync/devices.py",
        "if len({device.unit for device in devices}) < len(devices) or not",
        "if not",
        ("sync/test_devices.py::test_a_vendors_library_is_chosen_exactly_if_all_can_use_it",),
    ),
    Mutation(
        "divergence-shared",
        "Parameters that hold NaN or infinity are brought to nobody.",
        "ictp2p/sync/weights.py",
        "if not math.isfinite(self.delta.sum().item()):",
        "if self.delta.numel() == 0:",
        ("sync/test_hostile_models.py::test_a_cluster_that_diverged_brings_nothing_to_the_others",),
    ),
)

_RESIDUAL: Final = (
    Mutation(
        "residual-moves-before-commit",
        "What a sparse contribution leaves out is the residual only once the round is committed with it.",
        "ictp2p/sync/sparse.py",
        "        self._kept[self._captured].apply(self.delta)\n",
        "        self._kept[self._captured].apply(self.delta)\n        self._kept[self._captured].commit()\n",
        ("sync/test_sparse.py::test_an_aborted_round_leaves_everything_bit_for_bit_as_it_was",),
    ),
    Mutation(
        "residual-moves-with-others-round",
        "A round that others finished without this cluster takes nothing of its residual.",
        "ictp2p/sync/sparse.py",
        "        if mine:\n            self._kept",
        "        if True:\n            self._kept",
        ("sync/test_sparse.py::test_a_round_that_went_on_without_us_takes_nothing_of_the_residual",),
    ),
    Mutation(
        "residual-forgets-fetched-round",
        "A committed contribution moves the residual also where its result was fetched.",
        "ictp2p/sync/sparse.py",
        "        if mine:\n            self._kept",
        "        if False:\n            self._kept",
        ("sync/test_sparse.py::test_a_contribution_that_the_mesh_has_moves_the_residual",),
    ),
    Mutation(
        "residual-not-carried",
        "A newcomer to a cluster takes over what a contribution under way will leave out.",
        "ictp2p/sync/sparse.py",
        '        if "pending" in carried:\n',
        "        if False:\n",
        ("sync/test_sparse.py::test_a_newcomer_of_the_cluster_takes_the_residual_over",),
    ),
)

_STATE: Final = (
    Mutation(
        "chunk-not-verified",
        "A fetched chunk counts only if it matches the agreed digest.",
        "ictp2p/sync/transfer.py",
        "if digest_of(data) != self.manifest.chunk_digest(index):",
        "if not data:",
        ("sync/test_transfer.py::test_wrong_bytes_ban_their_provider_by_name_and_only_it",),
    ),
    Mutation(
        "state-committed-unverified",
        "A received state is committed only if every chunk of it is right.",
        "ictp2p/sync/state.py",
        '        if wrong is not None:\n            raise StateError(f"chunk {wrong} of state version',
        '        if wrong is not None and version < 0:\n            raise StateError(f"chunk {wrong} of state version',
        ("sync/test_state.py::test_another_peer_rebuilds_it_chunk_by_chunk_and_resumes",),
    ),
    Mutation(
        "any-state-served",
        "Who asks for a state by digest gets that one or an error, never another.",
        "ictp2p/sync/state.py",
        '        if digest != self.digest:\n            raise StateError(f"state',
        '        if not digest:\n            raise StateError(f"state',
        ("sync/test_state.py::test_only_the_committed_state_is_served",),
    ),
    Mutation(
        "tentative-is-committed",
        "The next state is computed beside the agreed one, which an abort leaves as it was to the bit.",
        "ictp2p/sync/state.py",
        "self._bytes = [torch.zeros(self._size, dtype=torch.uint8) for _ in range(2)]",
        "self._bytes = [torch.zeros(self._size, dtype=torch.uint8)] * 2",
        ("sync/test_state.py::test_rollback_leaves_the_committed_bytes_alone",),
    ),
    Mutation(
        "heal-from-the-leader",
        "All become like the worker that is furthest, so that no step that anybody completed is lost.",
        "ictp2p/sync/heal.py",
        "source = max(range(group.size), key=lambda rank: (found[rank].order, -rank))",
        "source = 0",
        ("sync/test_heal.py::test_all_become_like_the_one_that_is_furthest",),
    ),
    Mutation(
        "heal-in-place",
        "A worker is as it was or entirely healed: the source may die in the middle of the copy.",
        "ictp2p/sync/heal.py",
        "received = tensors if sending else allocate(skeleton, 2**62)",
        "received = tensors",
        ("sync/test_heal.py::test_a_source_that_dies_leaves_the_others_whole",),
    ),
)

_FSM: Final = (
    Mutation(
        "unknown-trigger-ignored",
        "A trigger that the state does not answer is an error, not silence.",
        "ictp2p/fsm.py",
        "        if not self.can(trigger):\n",
        "        if not self.can(trigger):\n            return self.state\n        if not self.can(trigger):\n",
        ("test_fsm.py::test_a_final_state_says_that_it_is_final",),
    ),
    Mutation(
        "ambiguous-table",
        "A state answers a trigger in one way.",
        "ictp2p/fsm.py",
        "if (row.source, row.trigger) in seen:",
        "if (row.source, row.trigger, row.target) in seen:",
        ("test_fsm.py::test_a_trigger_answered_twice_is_refused",),
    ),
)

_EXECUTOR: Final = (
    Mutation(
        "own-sum-kept",
        "Every participant takes the root's bytes, and none keeps a sum of its own.",
        "ictp2p/collectives/execute.py",
        "return views[0] if len(views) == 1 else None",
        "return memoryview(bytearray(size)) if len(views) == 1 else None",
        ("collectives/test_execute.py::test_results_land_in_the_output_itself",),
    ),
    Mutation(
        "own-sum-not-decoded",
        "With a codec the root keeps what others decode, not the sum that it encoded.",
        "ictp2p/collectives/coding.py",
        "        self._decode(start, stop, wire)\n        self._keep(start, wire.numpy())",
        "        self._outputs.ranges(start, stop)[0].copy_(total[: len(self._outputs.ranges(start, stop)[0])])\n"
        "        self._keep(start, wire.numpy())",
        ("collectives/test_coding.py::test_results_that_are_no_longer_at_hand_are_encoded_anew",),
    ),
    Mutation(
        "codec-not-as-asked",
        "Elements are not rounded unless that was asked for, whatever the coordinator plans.",
        "ictp2p/collectives/plan.py",
        "    return None if plan.codec in allowed else",
        "    return None if allowed else",
        ("collectives/test_plan.py::test_the_codec_is_the_one_that_was_asked_for",),
    ),
    Mutation(
        "diverged-hidden",
        "A block with an element that is not finite decodes to NaN, never to ordinary numbers.",
        "ictp2p/collectives/codecs/blocks.py",
        "scale.masked_fill_(poisoned, torch.nan)",
        "scale.masked_fill_(poisoned, 0.0)",
        ("collectives/codecs/test_codec.py::test_what_is_not_finite_is_never_hidden",),
    ),
    Mutation(
        "residual-before-commit",
        "What a codec left out is kept only of contributions that were committed.",
        "ictp2p/collectives/codecs/feedback.py",
        "left.sub_(piece).nan_to_num_(0.0, 0.0, 0.0)",
        "self._residual[start : start + _PIECE] = left.sub_(piece).nan_to_num_(0.0, 0.0, 0.0)",
        ("collectives/codecs/test_feedback.py::test_a_round_that_was_not_committed_leaves_no_trace",),
    ),
    Mutation(
        "attempt-not-in-the-tag",
        "Frames of another attempt are never taken.",
        "ictp2p/collectives/channel.py",
        'numbers = self.round.to_bytes(8, "big") + self.attempt.to_bytes(4, "big")',
        'numbers = self.round.to_bytes(8, "big")',
        ("bulk/test_collective.py::test_frames_of_another_attempt_are_never_taken",),
    ),
    Mutation(
        "tag-not-looked-at",
        "A frame goes to the collective whose tag it bears.",
        "ictp2p/bulk/hub.py",
        "found, _ = self._users.get((connection.peer, header.tag), (None, None))",
        "found = next((user for (peer, _), (user, _) in self._users.items() if peer == connection.peer), None)",
        ("bulk/test_collective.py::test_two_collectives_run_side_by_side",),
    ),
    Mutation(
        "contribution-added-to",
        "A participant's own contribution is read and never written: a failed attempt is repeated from it.",
        "ictp2p/collectives/tensors.py",
        "zip(self._aligned(own, start), own, strict=True)",
        "zip(own, own, strict=True)",
        ("collectives/test_tensors.py::test_a_root_adds_raw_and_partial_terms_with_their_weights_once",),
    ),
    Mutation(
        "output-over-input",
        "Results may not be asked for where the contribution lies.",
        "ictp2p/collectives/execute.py",
        "    if not in_place and source.overlaps(target):\n",
        "    if not in_place and source.overlaps(target) and not inputs:\n",
        ("collectives/test_execute.py::test_an_output_may_not_share_memory_with_an_input",),
    ),
    Mutation(
        "added-as-it-comes",
        "Terms are added in the order of participants, so that a repeat gives the same bits.",
        "ictp2p/collectives/tensors.py",
        "for n in sorted(terms)]\n",
        "for n in terms]\n",
        ("collectives/test_tensors.py::test_terms_are_added_in_the_order_of_participants",),
    ),
    Mutation(
        "widened-as-it-comes",
        "Half-precision terms too are added in the order of participants.",
        "ictp2p/collectives/tensors.py",
        "for node in sorted([*staged, self._me]):",
        "for node in [*staged, self._me]:",
        ("collectives/test_tensors.py::test_terms_are_added_in_the_order_of_participants",),
    ),
    Mutation(
        "chunk-counted-twice",
        "A chunk is taken once, in its turn, from whom the plan names.",
        "ictp2p/collectives/exchange.py",
        "if wanted != piece.chunk or wanted >= lane.chunks:",
        "if wanted is None or piece.chunk >= lane.chunks:",
        ("collectives/test_exchange.py::test_what_a_participant_does_not_have_to_send_is_refused",),
    ),
    Mutation(
        "sent-before-begun",
        "Nothing is sent to a participant that has not begun this very attempt.",
        "ictp2p/collectives/exchange.py",
        "        if peer not in self._begun:\n            return None\n",
        "",
        ("collectives/test_exchange.py::test_nothing_is_sent_to_a_participant_that_has_not_begun",),
    ),
    Mutation(
        "dropped-early-chunk-forgotten",
        "A chunk that came before we had begun, and found no room, is asked for again.",
        "ictp2p/bulk/early.py",
        "            self._dropped[tag] = None\n",
        "",
        ("bulk/test_early.py::test_a_chunk_that_comes_early_is_used_or_sent_again",),
    ),
    Mutation(
        "two-chunks-before-the-beginning",
        "Only one chunk goes ahead of the beginning: a second could overtake the first when that is sent again.",
        "ictp2p/collectives/exchange.py",
        "if peer in self._begun or peer in self._early:",
        "if peer in self._begun:",
        ("collectives/test_exchange.py::test_one_small_chunk_goes_ahead_of_the_beginning_and_no_more",),
    ),
    Mutation(
        "early-chunk-lost-while-we-begin",
        "A chunk that was being read when we began is ours.",
        "ictp2p/bulk/desk.py",
        "                if not self._bulk.catch_up(self._connection, header, body):\n"
        "                    self.early.keep(header, body)\n",
        "                self.early.keep(header, body)\n",
        ("bulk/test_collective.py::test_every_type_sealed_and_in_clear",),
    ),
    Mutation(
        "followers-not-told",
        "Whoever may be sent to because of a chunk that has arrived is told.",
        "ictp2p/collectives/exchange.py",
        "return (lane.reduce_parent,) if piece.partial else (lane.reduce_parent, *lane.followers)",
        "return (lane.reduce_parent,) if piece.partial else lane.followers",
        ("collectives/test_exchange.py::test_any_interleaving_ends_with_every_contribution_counted_once",),
    ),
    Mutation(
        "limit-may-close-the-window",
        "However little a sender wants on its way, its window never closes for good.",
        "ictp2p/collectives/exchange.py",
        "lane.window = min(lane.window, max(MIN_WINDOW, chunks))",
        "lane.window = min(lane.window, chunks)",
        ("collectives/test_exchange.py::test_any_interleaving_ends_with_every_contribution_counted_once",),
    ),
    Mutation(
        "trickle-taken-for-silence",
        "A peer that sends a few bytes at a time is slow, not stalled.",
        "ictp2p/bulk/connection.py",
        "            self._wakeups.relax()\n        self._received_at_tick",
        "            pass\n        self._received_at_tick",
        ("bulk/test_tuning.py::test_a_trickle_is_not_taken_for_silence",),
    ),
)

_EDGE: Final = (
    Mutation(
        "send-overtakes-persist",
        "Commands are carried out strictly in order: no `Send` leaves before the `Persist` that it relies on.",
        "ictp2p/driver.py",
        "        if self._executing:\n            return\n",
        "        if self._executing:\n"
        "            for _ in commands:\n"
        "                self._carry_out(self._pending.pop())\n"
        "            return\n",
        ("test_driver.py::test_what_a_listener_asks_for_never_overtakes_a_persist",),
    ),
    Mutation(
        "each-keeps-its-own-connection",
        "Of two connections both sides keep the same one: that of the lower id.",
        "ictp2p/driver.py",
        "return new.dialed == (self.core.card.peer < new.peer_id)",
        "return new.dialed",
        ("test_driver.py::test_of_two_connections_both_sides_keep_the_one_that_the_lower_id_dialed",),
    ),
    Mutation(
        "surplus-end-is-death",
        "The end of a connection that was replaced says nothing about the peer.",
        "ictp2p/driver.py",
        "if self._connections.get(peer) is connection:",
        "if peer in self._connections:",
        ("test_driver.py::test_a_newer_connection_by_the_same_side_replaces_a_dead_one",),
    ),
    Mutation(
        "fingerprint-ignored-by-the-acceptor",
        "A dialer of another mesh is turned away before TLS.",
        "ictp2p/preamble.py",
        "    if mine.fingerprint != theirs.fingerprint:\n",
        "    if len(mine.fingerprint) != len(theirs.fingerprint):\n",
        ("test_preamble.py::test_each_mismatch_is_named",),
    ),
    Mutation(
        "fingerprint-ignored-by-the-dialer",
        "An acceptor that welcomes strangers is not one of ours.",
        "ictp2p/preamble.py",
        "if verdict == Verdict.WELCOME and theirs.fingerprint != mine.fingerprint:",
        "if verdict == Verdict.WELCOME and not theirs.fingerprint:",
        ("test_preamble.py::test_an_acceptor_that_welcomes_another_mesh_is_not_believed",),
    ),
    Mutation(
        "pin-ignored",
        "Who dials a known peer refuses anybody else.",
        "ictp2p/control.py",
        "if expected is not None and peer != expected:",
        "if expected is not None and not peer:",
        ("test_control.py::test_a_peer_other_than_the_expected_one_is_refused_and_both_sides_are_told",),
    ),
    Mutation(
        "claimed-id-believed",
        "A peer's id is that of its certificate, whatever it says.",
        "ictp2p/control.py",
        "if proven is not None and claimed != proven:",
        "if proven is not None and not claimed:",
        ("test_control.py::test_a_peer_cannot_claim_another_id_than_its_certificates",),
    ),
    Mutation(
        "certificate-optional",
        "Nobody comes in without a certificate of the mesh.",
        "ictp2p/security.py",
        "context.verify_mode = ssl.CERT_REQUIRED",
        "context.verify_mode = ssl.CERT_REQUIRED if side == ssl.PROTOCOL_TLS_CLIENT else ssl.CERT_OPTIONAL",
        ("test_security.py::test_a_dialer_without_a_certificate_is_refused",),
    ),
    Mutation(
        "frames-replayable",
        "A sealed frame opens once and in its turn.",
        "ictp2p/bulk/seal.py",
        "        self._count += 1\n",
        "",
        ("bulk/test_frames.py::test_frames_cannot_be_replayed_or_reordered",),
    ),
)

_GROUPS: Final = (
    Mutation(
        "in-place-clobbers",
        "Where a sum is made in the contribution's own place, the contribution is read before it is overwritten.",
        "ictp2p/collectives/tensors.py",
        "return mine if read_first or not self._in_place else mine.copy()",
        "return mine",
        ("bulk/test_reduce.py::test_in_place_is_exact_whatever_our_place_among_the_terms",),
    ),
    Mutation(
        "receipts-astray",
        "The receipts of a reduction take its reduce tree: else a window would open for what nobody has used.",
        "ictp2p/collectives/plan.py",
        "if plan.kind == REDUCE and share.broadcast_parents != share.reduce_parents:",
        "if False:",
        ("collectives/test_plan.py::test_every_broken_rule_is_named",),
    ),
    Mutation(
        "begun-forgotten",
        "A peer that is far ahead has begun what it has begun, however much it was.",
        "ictp2p/bulk/desk.py",
        "_REMEMBERED = 4096",
        "_REMEMBERED = 64",
        ("torch_backend/test_group.py::test_hundreds_of_messages_may_be_sent_before_one_is_received",),
    ),
    Mutation(
        "cards-unsigned",
        "With a token, nobody takes a rank's place who does not know it.",
        "ictp2p/torch_backend/cards.py",
        "if mesh is not None and not mesh.vouched(_signed(rank, size, body), signature):",
        "if False:",
        ("torch_backend/test_cards.py::test_a_card_is_bound_to_its_token_group_size_and_rank",),
    ),
    Mutation(
        "any-source-unordered",
        "A receive from anybody is matched before the next one of its tag is: no message is given away twice.",
        "ictp2p/torch_backend/messages.py",
        "        async with self._turns[tag]:\n",
        "        if True:\n",
        ("torch_backend/test_group.py::test_who_receives_from_anybody_gets_each_message_once_and_in_order",),
    ),
    Mutation(
        "parts-of-others",
        "A vector is cut by those who are in the round that reduces it, not by those who were in the one before.",
        "ictp2p/calls/parts.py",
        "        if done.clusters == found.clusters:\n",
        "        if done:\n",
        ("calls/test_parts.py::test_both_rounds_are_repeated_until_the_same_clusters_are_in_both",),
    ),
    Mutation(
        "message-lost-unread",
        "A message stays at its sender until a receiver that has room for it takes it.",
        "ictp2p/calls/messages.py",
        "            number, message = next(iter(box.waiting.items()))\n",
        "            number, message = box.waiting.popitem(last=False)\n",
        ("calls/test_messages.py::test_what_is_wrong_is_said_and_the_message_stays",),
    ),
)

_SAMPLES: Final = (
    Mutation(
        "revoked-but-brought",
        "A cluster whose samples others have trained meanwhile does not bring what it trained apart.",
        "ictp2p/sync/sampler.py",
        "            return Fate.REVOKED\n",
        "            return Fate.OUT\n",
        ("sync/test_sampler.py::test_a_cluster_comes_back_after_others_have_trained_its_samples",),
    ),
    Mutation(
        "batch-twice-in-a-step",
        "Of two workers with the same batch in one step only the first counts.",
        "ictp2p/sync/averaging.py",
        "mark != NOTHING and mark in marks[:rank]",
        "False",
        ("sync/test_sampler.py::test_every_sample_once_per_epoch",),
    ),
    Mutation(
        "leases-for-ever",
        "What was leased to a cluster that is gone is trained by others.",
        "ictp2p/sync/leases.py",
        "            blocks[blocks == _SEATED + seat] = FREE\n",
        "",
        ("sync/test_leases.py::test_who_misses_more_rounds_than_are_kept_loses_its_lease",),
    ),
)

CATALOGUE: Final = (
    *_ROUTING,
    *_SAMPLES,
    *_CONTROL_PLANE,
    *_BULK,
    *_GOSSIP,
    *_ELECTION,
    *_AGREEMENT,
    *_ROUNDS,
    *_RESIDUAL,
    *_STATE,
    *_FSM,
    *_EXECUTOR,
    *_EDGE,
    *_GROUPS,
)
"""Every mutation, by floor."""
