"""Membership, measured links, and the election of a leader."""

from __future__ import annotations

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "twins-live-on",
        "Of two processes with one identity one stops.",
        "ictp2p/gossip/ledger.py",
        "return [Doubled(record)]",
        "return []",
        ("gossip/test_swim_claims.py::test_of_two_processes_with_one_identity_exactly_one_finds_itself_doubled",),
    ),
    Mutation(
        "long-sample-is-one-of-many",
        "A full-speed transfer that lasted tells of a changed link alone: the next round is planned on it.",
        "ictp2p/gossip/window.py",
        "and seconds >= self._profile.long and",
        "and seconds < 0.0 and",
        ("gossip/test_link_bandwidth.py::TestBandwidth::test_or_after_one_that_lasted",),
    ),
    Mutation(
        "long-wait-taken-for-a-slow-link",
        "A transfer that waited for its application, however long, never lowers an estimate.",
        "ictp2p/gossip/window.py",
        "if app_limited and known is not None and rate <= known:",
        "if app_limited and known is not None and rate <= known and seconds < 5.0:",
        ("gossip/test_link_bandwidth.py::TestBandwidth::test_an_app_limited_transfer_never_lowers_an_estimate",),
    ),
    Mutation(
        "opening-window-taken-for-the-link",
        "What a sender's window let through in a few round trips is a lower bound, and not what the link carries.",
        "ictp2p/gossip/links.py",
        "at_least = app_limited or link.opens_within(seconds, now)",
        "at_least = app_limited",
        (
            "gossip/test_link_bandwidth.py::TestBandwidth"
            "::test_of_a_link_that_only_waited_or_only_opened_its_window_nothing_is_known",
        ),
    ),
    Mutation(
        "helpers-drawn-at-random",
        "Helpers are a shuffle of all who can help: the only one of a small group is never missed.",
        "ictp2p/gossip/prober.py",
        "return tuple(self._rng.sample(able, min(self._profile.helpers, len(able))))",
        "drawn = {self._rng.choice(self._ledger.others()) for _ in range(self._profile.helpers)}\n"
        "        return tuple(sorted(drawn.intersection(able)))",
        ("gossip/test_swim_trouble.py::test_only_helper_of_three_is_always_asked",),
    ),
    Mutation(
        "slow-is-silent",
        "Where answers have taken long of late, a probe is given up later: a slow answer is no missing one.",
        "ictp2p/gossip/prober.py",
        "max(interval, 2 * patience, 2 * self._grace())",
        "max(interval, 2 * patience)",
        ("gossip/test_prober.py::test_a_verdict_waits_as_long_as_answers_take_within_reason",),
    ),
    Mutation(
        "slow-answers-hide-a-death",
        "However slow the answers of others are, a probe is given up after a bounded time.",
        "ictp2p/gossip/prober.py",
        "return min(self._answers.wanted, _GRACE_LIMIT * self._profile.probe_timeout)",
        "return self._answers.wanted",
        ("gossip/test_prober.py::test_a_verdict_waits_as_long_as_answers_take_within_reason",),
    ),
    Mutation(
        "only-quick-answers-are-learned-from",
        "An answer after the verdict tells how long answers take, too: the quick ones alone never tell of the slow.",
        "ictp2p/gossip/answers.py",
        "_LATE = 4",
        "_LATE = 1",
        ("gossip/test_prober.py::test_an_answer_after_the_verdict_is_learned_from",),
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
        ("gossip/test_swim_claims.py::test_forged_and_unsigned_records_are_ignored",),
    ),
    Mutation(
        "suspicion-cleared-by-old-news",
        "Only a greater incarnation clears a suspicion: a new payload may have left before the crash.",
        "ictp2p/gossip/table.py",
        "elif known is None or record.incarnation > known.record.incarnation:",
        "elif known is None or record.version > known.record.version:",
        ("gossip/test_swim_claims.py::test_new_payload_in_the_accused_incarnation_clears_nothing",),
    ),
    Mutation(
        "reset-is-death",
        "The end of a connection is a suspicion and never a death.",
        "ictp2p/gossip/swim.py",
        "        if refused:\n            self._table.suspicions[member].settle(now)\n",
        "        if not refused:\n"
        "            effects += self._ledger.bury(member, known.record.incarnation, self._me, now)\n",
        ("gossip/test_swim_crashes.py::test_broken_connection_is_a_suspicion_and_never_a_death",),
    ),
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
        "suspicion-deposes",
        "A leader that is only suspected keeps its office.",
        "ictp2p/gossip/election.py",
        "return self.in_office or self._leader in self._alive",
        "return self.in_office or self._leader in {*self._alive} - self._suspects",
        ("gossip/test_election.py::TestOnePeer::test_a_suspected_leader_stays",),
    ),
    Mutation(
        "heir-takes-the-term-it-is-told",
        "A term is claimed by who leads in it, and by nobody for another.",
        "ictp2p/gossip/election.py",
        "return [Send(heir, Claim(self.term + 1, heir))]",
        "return self._learn(self.term + 1, heir, 0.0)",
        ("gossip/test_election.py::TestOnePeer::test_an_office_is_handed_over_by_the_heirs_own_claim",),
    ),
    Mutation(
        "far-as-soon-as-near",
        "News goes over connections that there are; sent to anybody it would take several hops, each time.",
        "ictp2p/gossip/swim.py",
        "near = [name for name in others if name in self._near] or others",
        "near = others",
        ("gossip/test_swim_cost.py::test_news_goes_to_those_that_are_near_and_to_all_if_none_of_them_is_there",),
    ),
    Mutation(
        "news-slowed-by-a-detail",
        "Pressing news that a later detail takes the place of spreads no slower for it.",
        "ictp2p/gossip/broadcast.py",
        "        if not isinstance(news, Record) or not news.detail:\n            self._pressing.add(which)\n",
        "        self._pressing.discard(which)\n        if not isinstance(news, Record) or not news.detail:\n"
        "            self._pressing.add(which)\n",
        ("gossip/test_broadcast.py::test_whether_more_than_details_waits",),
    ),
    Mutation(
        "nobody-near-nobody-told",
        "Who has no neighbours gossips with whomever it knows.",
        "ictp2p/gossip/swim.py",
        "near = [name for name in others if name in self._near] or others",
        "near = [name for name in others if name in self._near]",
        ("gossip/test_swim_cost.py::test_news_goes_to_those_that_are_near_and_to_all_if_none_of_them_is_there",),
    ),
    Mutation(
        "dialed-for-ever",
        "Who is named by nobody for as long as membership remembers the dead is not dialed any more.",
        "ictp2p/core/stack.py",
        "        self._forget()\n",
        "",
        (
            "core/test_stack_deaths.py"
            "::test_a_dead_mate_is_dialed_far_longer_than_membership_remembers_the_dead_but_not_for_ever",
        ),
    ),
    Mutation(
        "forgotten-while-here",
        "Nobody is forgotten who is there.",
        "ictp2p/core/directory.py",
        "listed.union(here, (",
        "listed.union((",
        ("core/test_directory.py::test_exactly_those_are_forgotten_whom_nobody_named_for_long_enough",),
    ),
    Mutation(
        "former-life-dialed",
        "A dead worker is not dialed where a living one has its address.",
        "ictp2p/core/contacts.py",
        "(card.peer for card in dead if card.address in taken)",
        "(card.peer for card in dead if not taken)",
        ("core/test_stack_deaths.py::test_a_dead_mate_is_not_dialed_where_a_living_one_has_its_address",),
    ),
    Mutation(
        "former-life-keeps-the-living-out",
        "An address book has room for the living before all others.",
        "ictp2p/entrance.py",
        "key=lambda card: card.peer not in here)",
        "key=lambda card: card.peer)",
        ("core/test_directory.py::test_an_address_book_has_room_for_the_living_before_all_others",),
    ),
    Mutation(
        "met-to-be-buried",
        "An active machine takes no dead man's record from another's view whom it does not know.",
        "ictp2p/gossip/swim.py",
        "if not sight.status.present and sight.record.member not in self.members:",
        "if sight.record.left and sight.record.member not in self.members:",
        ("gossip/test_swim_copies.py::test_active_machine_meets_nobody_only_to_bury_him",),
    ),
    Mutation(
        "term-above-incarnations",
        "A claim to a term that no incarnation of the cluster can hold is refused.",
        "ictp2p/gossip/election.py",
        "_HIGHEST = MAX_INCARNATION >> 32\n",
        "_HIGHEST = MAX_INCARNATION\n",
        (
            "gossip/test_election.py"
            "::test_a_term_that_the_wire_takes_has_an_incarnation_of_its_cluster_and_room_for_a_later_one",
        ),
    ),
    Mutation(
        "too-long-to-be-there",
        "A cluster of more workers than fit into its record is in the mesh, by those who fit.",
        "ictp2p/core/publication.py",
        "listed = fitted(card, MAX_PAYLOAD)",
        "listed = card",
        ("core/test_stack_deaths.py::test_a_cluster_whose_card_is_too_long_stays_in_the_mesh_and_says_so",),
    ),
    Mutation(
        "volatile-listed-first",
        "Of workers that do not all fit into a card those stay whose promises survive a crash.",
        "ictp2p/core/cards.py",
        "key=lambda worker: not worker.durable)",
        "key=lambda worker: worker.peer)",
        (
            "core/test_cards.py"
            "::test_a_card_that_is_too_long_keeps_its_leader_and_as_many_as_fit_of_those_who_may_vote_first",
        ),
    ),
    Mutation(
        "in-before-all-is-shown",
        "Who is shown a view in parts is in when it has all of them.",
        "ictp2p/core/meetings.py",
        "        if not copy.more:\n            self.join()\n",
        "        self.join()\n",
        ("core/test_meetings.py::test_who_is_shown_a_view_in_parts_is_in_when_it_has_all_of_them",),
    ),
)
