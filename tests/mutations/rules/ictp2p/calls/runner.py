"""The rules of `ictp2p/calls/runner.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "given-up-and-gone-on",
        "A round that a call was in which was given up is accounted for before the next one takes part.",
        "            except BaseException as error:\n                self._chronicle.give_up()\n",
        "            except BaseException as error:\n",
        ("sim/test_call_deaths.py::test_a_call_that_is_repeated_after_its_leader_voted_is_not_the_next_one",),
    ),
    Mutation(
        "older-answer-handed-over",
        "Who missed calls of its cluster hands nobody the answer that it had before.",
        "            self._fail(heads.newest, call, missed)\n",
        "            self._place = heads.newest\n",
        ("calls/test_runner.py::test_nobody_is_handed_an_older_answer_than_that_of_its_call",),
    ),
    Mutation(
        "missed-by-its-leader-alone",
        "All workers of a cluster are told of a round that it missed, or they are a call apart from there on.",
        "            self._fail(heads.here(group.generation), call, error)\n",
        "",
        ("sim/test_call_newcomers.py::test_all_workers_of_a_cluster_are_told_of_a_round_that_it_missed",),
    ),
    Mutation(
        "refused-to-its-leader-alone",
        "All workers of a cluster are told that its call is not the mesh's, or one waits for mates that are done.",
        "except (RoundMissed, MeshMismatch) as error:",
        "except RoundMissed as error:",
        ("calls/test_runner.py::test_a_worker_whose_group_broke_is_told_of_what_ended_its_call_for_the_whole_cluster",),
    ),
    Mutation(
        "own-error-handed-on",
        "What one worker alone came to, when its time is over say, ends no call of its mates.",
        "except (RoundMissed, MeshMismatch) as error:",
        "except (RoundMissed, MeshMismatch, RoundTimeout) as error:",
        ("calls/test_runner.py::test_what_one_worker_alone_came_to_is_no_answer_for_its_mates",),
    ),
    Mutation(
        "taught-and-no-newcomer",
        "A newcomer that was shown the state is at no call of its mates yet.",
        "self.lesson(), call, heads.taught, None)",
        "self.lesson(), call, heads.taught, heads.newest)",
        ("calls/test_runner.py::test_a_newcomer_that_was_shown_the_state_leaves_its_mates_to_theirs_all_the_same",),
    ),
    Mutation(
        "newcomer-ends-its-mates-calls",
        "A newcomer at another call than its mates is no error of theirs.",
        "        if heads.strange:  #",
        "        if False:  #",
        (
            "calls/test_runner.py::test_a_newcomer_that_is_at_another_call_leaves_its_mates_to_theirs_and_comes_again",
            "sim/test_call_newcomers.py::test_a_worker_that_starts_again_is_let_in_between_two_calls_of_its_mates",
        ),
    ),
    Mutation(
        "newcomer-comes-again-at-once",
        "A newcomer at another call than its mates leaves them time for theirs.",
        "        deadline.sleep(self._aside, self._chronicle.wait)\n",
        "",
        ("sim/test_call_newcomers.py::test_who_begins_with_a_call_that_its_mates_make_no_more_leaves_them_to_theirs",),
    ),
    Mutation(
        "newcomer-cut-off-before-it-knows",
        "No group ends before a newcomer in it knows that it is at another call.",
        "            group.all_gather(_PARTING)\n            raise",
        "            raise",
        ("sim/test_call_newcomers.py::test_who_begins_with_a_call_that_its_mates_make_no_more_leaves_them_to_theirs",),
    ),
    Mutation(
        "alone-with-its-error",
        "Who has no memory for a call leaves the group, so that its mates do not wait for it.",
        "isinstance(error, PeerClosed | Exhausted)",
        "isinstance(error, PeerClosed)",
        ("calls/test_runner.py::test_who_has_no_memory_for_a_call_lets_its_mates_not_wait_for_it",),
    ),
    Mutation(
        "missed-by-who-follows-alone",
        "What a cluster missed is known to who leads it, though it may have started since.",
        "        if heads.known > heads.settled:",
        "        if False:",
        ("calls/test_runner.py::test_a_round_that_a_cluster_missed_is_said_also_where_its_leader_has_started_since",),
    ),
    Mutation(
        "sleeper-keeps-its-place",
        "Who slept through calls takes its place among its mates as a newcomer does.",
        "            self._fresh, self._aside = True, _ASIDE ",
        "            self._aside = _ASIDE ",
        ("calls/test_runner.py::test_who_slept_through_calls_is_a_newcomer_and_leaves_its_mates_to_theirs",),
    ),
    Mutation(
        "leads-while-it-stands-aside",
        "A newcomer that leaves its mates to their call leaves them the office as well.",
        "        self._mesh.calls_yield(self._seen or (0, 0))\n",
        "        self._mesh.calls_ready(False)\n",
        (
            "calls/test_runner.py::test_a_newcomer_that_is_at_another_call_leaves_its_mates_to_theirs_and_comes_again",
            "sim/test_calls_unharmed.py::test_who_did_nothing_wrong_sees_no_error",
        ),
    ),
    Mutation(
        "answer-of-the-last-call-kept",
        "A peer that is closed keeps no result of a call.",
        'answer of the last one."""\n        self._last = None\n',
        'answer of the last one."""\n',
        ("test_call_memory.py::test_a_peer_that_is_closed_keeps_no_result",),
    ),
)
