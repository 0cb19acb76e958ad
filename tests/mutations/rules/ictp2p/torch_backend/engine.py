"""The rules of `ictp2p/torch_backend/engine.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "later-parts-given-up-in-silence",
        "With one part of a call that fails at a rank those behind it are over, for all who begin them.",
        "                    self.give_up(part, error)",
        "                    pass",
        ("torch_backend/test_group_ends.py::test_who_comes_to_what_has_failed_before_it_began_hears_of_it",),
    ),
    Mutation(
        "part-that-breaks-in-silence",
        "So is that part itself, also if it broke before it began.",
        "for part, _ in parts[number:]:",
        "for part, _ in parts[number + 1 :]:",
        ("torch_backend/test_group_ends.py::test_who_comes_to_what_has_failed_before_it_began_hears_of_it",),
    ),
    Mutation(
        "over-without-a-word",
        "Who calls what moves nothing has those told who begin another thing with it.",
        "        if not plan.elements:\n            self._bulk.forgo(tag.wire(), tag.call)\n",
        "        if not plan.elements:\n",
        (
            "torch_backend/test_differing.py"
            "::test_who_calls_what_moves_nothing_has_those_told_who_begin_another_thing_with_it",
        ),
    ),
    Mutation(
        "message-cut-silently",
        "A message that is longer than what takes it is an error, never a part of itself.",
        'tag = self._tag(step, f" of {data.numel()} bytes", self._edge(source, target))',
        'tag = self._tag(step, "", self._edge(source, target))',
        ("torch_backend/test_group_messages.py::test_a_message_arrives_whole_or_not_at_all",),
    ),
    Mutation(
        "refused-in-pages",
        "What is said of a refusal fits in a frame.",
        "printable(words)[:_MOST]",
        "printable(words)",
        ("torch_backend/test_refusals.py::test_a_page_of_words_is_told_in_part_and_breaks_no_connection",),
    ),
    Mutation(
        "types-to-come-unsaid",
        "Ranks that coalesce more types than others are told, and do not wait for these.",
        'f"{step.kind}{what}{step.then}"',
        'f"{step.kind}{what}"',
        ("torch_backend/test_refusals.py::test_ranks_that_coalesce_other_types_are_told",),
    ),
)
