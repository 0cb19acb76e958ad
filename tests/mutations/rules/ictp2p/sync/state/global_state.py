"""The rules of `ictp2p/sync/state/global_state.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "another-naming-is-forgery",
        "Who trains by a policy whose states are named by another rule is told so, and does not ask on.",
        "known = digest == named or is_of_a_training(manifest, digest)",
        "known = digest == named",
        ("sync/state/test_own.py::test_who_trains_by_another_policy_is_told_whatever_its_states_are_named_by",),
    ),
    Mutation(
        "any-naming-will-do",
        "A state is taken by the name that its own policy gives it alone.",
        "        if named != digest:\n",
        "        if not known:\n",
        ("sync/state/test_own.py::test_who_trains_by_another_policy_is_told_whatever_its_states_are_named_by",),
    ),
    Mutation(
        "only-we-can-read-it",
        "A state is refused where it is made if those who are sent its manifest would refuse that.",
        "        check(entries, settings)\n",
        "",
        ("sync/state/test_state.py::test_what_nobody_else_could_read_is_refused",),
    ),
    Mutation(
        "predecessor-kept-for-ever",
        "The state that a process held before is let go of once the next one is as far.",
        "        if before is not None and version >= before.version + bool(before.sealed):",
        "        if False:",
        ("sync/state/test_state.py::test_what_a_process_held_before_is_had_of_it_until_its_next_state_is_as_far",),
    ),
    Mutation(
        "sealed-and-given-back",
        "What a worker has computed for a round is kept until it is known whether the mesh has committed it.",
        "        if not self.sealed:\n            self.draft, self._beside = None, {}\n",
        "        if True:\n            self.draft, self._beside = None, {}\n",
        ("sync/state/test_state.py::test_what_a_predecessor_has_computed_may_still_be_had",),
    ),
    Mutation(
        "state-committed-unverified",
        "A received state is committed only if every chunk of it is right.",
        "        if wrong is not None:\n            self._beside = found",
        "        if wrong is not None and version < 0:\n            self._beside = found",
        ("sync/state/test_receiving.py::test_another_peer_rebuilds_it_chunk_by_chunk_and_resumes",),
    ),
    Mutation(
        "what-was-written-over-is-here",
        "Only what lies in the memory of the next state untouched is not fetched.",
        '        self.sealed, self.draft, self._beside = b"", None, {}\n',
        '        self.sealed, self.draft = b"", None\n',
        ("sync/state/test_receiving.py::test_whatever_came_before_only_what_is_here_is_taken_for_it",),
    ),
    Mutation(
        "what-is-wrong-stays-here",
        "Chunks that were thought to be here, and are not, are fetched the next time.",
        "            self._beside = found  # or",
        "            pass  # or",
        ("sync/state/test_receiving.py::test_what_was_written_over_behind_our_back_is_fetched_again",),
    ),
    Mutation(
        "any-state-served",
        "Who asks for a state by digest gets that one or an error, never another.",
        "        if digest != self.digest and not sealed:\n            version, held",
        "        if not digest:\n            version, held",
        ("sync/state/test_state.py::test_only_the_committed_state_is_served",),
    ),
    Mutation(
        "served-while-replaced",
        "Nothing is served that was read while another state took its place.",
        "        if self._moves != moves or (",
        "        if self._moves < moves or (",
        ("sync/state/test_state.py::test_nobody_waits_for_a_commit_and_nobody_is_served_what_it_replaces",),
    ),
    Mutation(
        "served-while-overwritten",
        "Nor is what was read of a sealed state while somebody began to write to it.",
        " or (sealed and self.sealed != digest):",
        ":",
        ("sync/state/test_state.py::test_nobody_is_served_the_sealed_state_while_it_is_overwritten",),
    ),
    Mutation(
        "agreed-and-not-served",
        "A state that is agreed on is served while it waits to be committed, for a phase if the round overlapped one.",
        "        sealed = bool(digest) and digest == self.sealed",
        "        sealed = False",
        ("sync/state/test_state.py::test_the_sealed_state_is_served_beside_the_committed_one_until_it_is_written_to",),
    ),
    Mutation(
        "sealed-chunks-from-one-half",
        "What a round did not touch of the sealed state lies in the committed one.",
        "committed=not (sealed and index in self._halves.touched)",
        "committed=not sealed",
        ("sync/state/test_state.py::test_the_sealed_state_is_served_beside_the_committed_one_until_it_is_written_to",),
    ),
    Mutation(
        "served-half-replaced",
        "While a fragment is committed nothing is served: the memory holds neither state.",
        "        if moves % 2:\n",
        "        if moves < 0:\n",
        ("sync/state/test_state.py::test_nobody_waits_for_a_commit_and_nobody_is_served_what_it_replaces",),
    ),
    Mutation(
        "read-across-a-commit",
        "What a thread reads beside training, for a file or an evaluation, is all of one version.",
        "if found is not None and self._moves == moves:",
        "if found is not None:",
        ("sync/state/test_state.py::test_who_reads_beside_training_reads_all_of_one_version",),
    ),
    Mutation(
        "hashes-of-what-was-written-over",
        "Whoever else writes to the next state has all of it hashed anew.",
        "        self.draft, self._beside = None, {}\n        self._halves.touch(self._halves.everywhere())",
        "        self._beside = {}\n        self._halves.touch(self._halves.everywhere())",
        ("sync/state/test_draft.py::test_a_state_that_others_wrote_to_is_hashed_anew",),
    ),
    Mutation(
        "written-to-what-was-received",
        "Who receives a state begins no step that was begun before it.",
        '        self.sealed, self.draft = b"", None  # first, as in `rollback`\n',
        '        self.sealed = b""  # first, as in `rollback`\n',
        ("sync/model/test_stepping.py::test_what_arrives_late_writes_to_no_state_that_has_become_another_one",),
    ),
    Mutation(
        "predecessor-forgotten-with-its-next",
        "What was held before is let go only once what it has computed is no news either.",
        "version >= before.version + bool(before.sealed)",
        "version >= before.version",
        ("sync/state/test_state.py::test_a_predecessor_is_let_go_only_once_what_it_has_computed_is_no_news_either",),
    ),
)
