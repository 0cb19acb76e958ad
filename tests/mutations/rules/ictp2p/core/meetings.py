"""The rules of `ictp2p/core/meetings.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "greets-after-its-goodbye",
        "Who has said goodbye greets nobody: else it would be taken for back, and its cluster for led.",
        "        self._parting, self._last = True, last\n",
        "        self._last = last\n",
        (
            "core/test_stack_goodbyes.py"
            "::test_who_has_said_goodbye_does_not_greet_again_because_another_leads_its_cluster",
        ),
    ),
    Mutation(
        "talked-out-of-its-mates",
        "Of a mate who is here nobody's word counts but its own.",
        " and not (here and here.status.present):\n",
        ":\n",
        ("core/test_stale_cards.py",),
    ),
    Mutation(
        "strangers-introduced",
        "Who introduces workers is believed about the receiver's own cluster alone.",
        "            if worker.cluster == self._context.cluster and (known",
        "            if (known",
        (
            "core/test_meetings.py::test_an_introduction_is_believed_about_our_own_cluster_and_of_no_more_than_it_can_have",
        ),
    ),
    Mutation(
        "in-before-all-is-shown",
        "Who is shown a view in parts is in when it has all of them.",
        "        if not copy.more:\n            self.join()\n",
        "        self.join()\n",
        ("core/test_meetings.py::test_who_is_shown_a_view_in_parts_is_in_when_it_has_all_of_them",),
    ),
    Mutation(
        "leader-that-never-saw-a-death",
        "A leader is told by its mates of lives whose end it did not see.",
        "            self._correct(sender, state)\n",
        "",
        ("core/test_meetings.py::test_a_leader_who_never_saw_a_death_is_told_of_it_by_mates_who_did",),
    ),
    Mutation(
        "every-newcomer-shown-alone",
        "Mates are shown many changes of the mesh together: one showing for each would be N times N records.",
        "if self._context.leading and now < self._shown_at + self._pause:",
        "if self._context.leading and now < self._shown_at:",
        ("core/test_stack.py::test_many_who_come_at_once_are_shown_to_the_mates_together_and_nobody_is_left_out",),
    ),
    Mutation(
        "old-disk-believed",
        "A disk that knows less of its peer's terms than the mesh does is an older copy, and its peer stops.",
        "            if card.leader == me and card.term > election.term:\n",
        "            if False:\n",
        ("core/test_meetings.py::test_an_old_copy_of_a_disk_is_noticed_where_a_cluster_has_no_other_worker",),
    ),
    Mutation(
        "old-disk-suspected",
        "Who led in the term that the mesh names, and knows it, has the newest disk.",
        "            if card.leader == me and card.term > election.term:\n",
        "            if card.leader == me and card.term >= election.term:\n",
        ("core/test_meetings.py::test_an_old_copy_of_a_disk_is_noticed_where_a_cluster_has_no_other_worker",),
    ),
    Mutation(
        "own-term-not-recalled",
        "A newcomer learns from the mesh which term its cluster has reached: bound terms never fall.",
        "        if not self._context.leading:  # a leader is told of rivals by the membership\n",
        "        if not self._context.dirty and self._context.leading:\n",
        ("sim/test_world.py::test_a_cluster_s_terms_go_on_though_whoever_knew_the_last_one_is_dead",),
    ),
    Mutation(
        "mate-says-so-and-is-not-seen",
        "A mate that says who leads is known to be there.",
        "greeting.leader, context.now, told=True)",
        "greeting.leader, context.now)",
        ("sim/test_policies_at_random.py::test_stories_of_paths_that_ended_badly_do_so_no_more",),
    ),
    Mutation(
        "leaderless-hears-one",
        "Who has no leader takes what everybody says of the mesh for evidence.",
        "        if context.leader not in context.mates() or sender",
        "        if context.leading or sender",
        ("core/test_meetings.py::test_who_has_no_leader_yet_learns_the_last_term_also_from_whom_it_meets_second",),
    ),
    Mutation(
        "leads-what-it-left",
        "Who said goodbye for its cluster is not taken for its leader by what it said before.",
        "                if leader != gone:\n",
        "                if leader:\n",
        (
            "core/test_stack_goodbyes.py::"
            "test_who_left_for_its_cluster_is_not_taken_for_its_leader_by_what_it_said_before",
        ),
    ),
    Mutation(
        "left-and-shown-again",
        "A cluster that has left, as we know, is not learned again from an older view of another.",
        "        left = sight.record.left or (held is not None and held.record.left)\n",
        "        left = sight.record.left\n",
        ("core/test_stack_goodbyes.py::test_an_older_view_does_not_bring_back_a_cluster_that_has_left",),
    ),
    Mutation(
        "shown-after-its-goodbye",
        "Who left for its cluster shows nobody any more who led it.",
        "own = None if self._last else ",
        "own = ",
        ("core/test_stack_goodbyes.py::test_who_left_for_its_cluster_does_not_show_it_to_whom_it_still_lets_in",),
    ),
)
