"""The rules of `ictp2p/runtime/entrance.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "former-life-keeps-the-living-out",
        "An address book has room for the living before all others.",
        "key=lambda other: other[0] not in here)",
        "key=lambda other: other[0])",
        ("core/test_directory.py::test_an_address_book_has_room_for_the_living_before_all_others",),
    ),
    Mutation(
        "resumes-only-if-let-in",
        "Who has a chain on its disk belongs to that mesh, though nobody is there to let it in.",
        "if self._core.m.rounds.tip is not None:",
        "if self._core.m.rounds.tip is not None and not self._seeds:",
        ("sim/test_resume.py::test_a_mesh_that_was_stopped_whole_resumes_its_chain",),
    ),
    Mutation(
        "stops-looking-for-the-others",
        "Who is out of touch with a quorum of the voters dials every address that it knows, for as long as it runs.",
        "        if not self._in_touch():\n            return self._addresses()",
        "        if False:\n            return self._addresses()",
        ("runtime/test_entrance.py::test_who_misses_those_whom_it_needs_looks_everywhere_each_time",),
    ),
    Mutation(
        "refused-by-all-without-a-word",
        "Who resumes and is refused by everybody who answers is told so by an error.",
        "        await self._outlast_refusals()\n",
        "",
        ("runtime/test_entrance.py::test_who_resumes_and_is_refused_by_all_is_told_so_at_once",),
    ),
    Mutation(
        "ended-by-a-stranger",
        "Who resumes asks on as long as some are silent, for a stranger may have an address that was one of ours.",
        "or loop.time() >= end:",
        "or True:",
        ("runtime/test_entrance.py::test_a_stranger_at_an_old_address_keeps_nobody_from_those_who_come_later",),
    ),
    Mutation(
        "only-voter-ended-by-a-stranger",
        "Who is the only voter needs nobody, and is ended by nobody's refusal.",
        "== {self._core.card.peer}):",
        "== set()):",
        ("runtime/test_entrance.py::test_who_is_the_only_voter_is_ended_by_no_stranger",),
    ),
    Mutation(
        "later-refusals-not-told",
        "Who refuses a peer that is in already is told of.",
        "                await self._call_on(self._sought(turn))\n                self._tell_of_refusals()\n",
        "                await self._call_on(self._sought(turn))\n",
        ("runtime/test_entrance.py::test_who_answers_later_and_refuses_is_told_of_once",),
    ),
    Mutation(
        "content-to-be-alone",
        "Who leads a cluster that sees no other dials every address that it knows, though a quorum is in touch.",
        "return self._vacant(turn // _SELDOM) if self._core.neighbours() else self._addresses()",
        "return self._vacant(turn // _SELDOM) if self._core.neighbours() else ()",
        ("sim/test_resume.py::test_a_hidden_cluster_that_has_the_quorum_finds_who_was_down_when_it_started",),
    ),
    Mutation(
        "waits-at-the-door-without-a-word",
        "Who waits for its seeds says so.",
        "        waiting = asyncio.get_running_loop().call_later(2 *",
        "        waiting = asyncio.get_running_loop().call_later(2000 *",
        ("runtime/test_entrance.py::test_who_waits_for_its_seeds_says_so_long_before_it_gives_up",),
    ),
    Mutation(
        "content-to-be-few",
        "Who leads a cluster that sees some others dials addresses where nobody is known to be, though none is missed.",
        "return self._vacant(turn // _SELDOM) if self._core.neighbours() else self._addresses()",
        "return () if self._core.neighbours() else self._addresses()",
        ("sim/test_resume.py::test_who_was_away_while_others_moved_is_found_where_it_was",),
    ),
    Mutation(
        "living-looked-for",
        "Nobody is looked for where somebody is known to be.",
        "vacant = [a for a in self._addresses() if a not in taken and self._answers.get(a) not in here]",
        "vacant = [a for a in self._addresses() if a not in taken]",
        ("runtime/test_entrance.py::test_who_misses_nobody_looks_now_and_then_where_nobody_is_known_to_be",),
    ),
    Mutation(
        "dials-in-vain-are-kept-whole",
        "What an address answered is kept without the frames of its dial.",
        "self._answers[address] = untraced(error)",
        "self._answers[address] = error",
        ("runtime/test_entrance.py::test_what_a_dial_in_vain_worked_with_is_not_kept_with_its_answer",),
    ),
    Mutation(
        "damaged-address-book",
        "A peer whose file of addresses is damaged keeps its identity, and goes on without them.",
        "        except StateError:\n            self._damaged",
        "        except ZeroDivisionError:\n            self._damaged",
        ("test_peer_folders.py::test_a_damaged_address_book_costs_no_peer_its_identity",),
    ),
)
