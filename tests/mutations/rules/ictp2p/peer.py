"""The rules of `ictp2p/peer.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "configuration-of-a-failed-start",
        "A start that failed leaves nothing for the next one.",
        "                self.config = given\n",
        "                pass\n",
        ("test_torchrun.py::test_a_peer_whose_start_failed_finds_its_job_again",),
    ),
    Mutation(
        "traceback-for-each-event",
        "A callback that fails is logged once for what it fails by, and not for each event.",
        "if (due := self._repetition.to_log(text, time.monotonic())) is not None:",
        "if (due := text) is not None:",
        ("test_peer_events.py::test_a_callback_that_fails_is_told_of_what_comes_next_and_so_are_the_others",),
    ),
    Mutation(
        "exit-in-a-callback",
        "A callback of the program that asks the interpreter to exit ends neither the peer nor the wait for it.",
        "        except BaseException as error:  # `sys.exit` as well: it would end the peer's thread,",
        "        except Exception as error:  # `sys.exit` as well: it would end the peer's thread,",
        ("test_peer_events.py::test_a_callback_that_fails_is_told_of_what_comes_next_and_so_are_the_others",),
    ),
    Mutation(
        "folder-of-nobody-known",
        "Where a peer of the same process has what another one wants, the error says which, so that it can be closed.",
        "raise named(error, self.config, self.running()) from error",
        "raise",
        ("test_peer_life.py::test_a_peer_whose_name_was_given_to_another_one_is_named_and_can_be_closed",),
    ),
    Mutation(
        "alarm-hushed",
        "An alarm is in the log each time.",
        "if of_a_round else text",
        "if text else text",
        ("runtime/test_repetition.py::test_a_peer_logs_alarms_always_and_what_is_so_in_each_round_once",),
    ),
    Mutation(
        "other-release-not-logged",
        "A mesh logs who came with another release.",
        'case "refused", {',
        'case "", {',
        ("runtime/test_repetition.py::test_a_peer_logs_who_came_with_another_release_once_per_host",),
    ),
    Mutation(
        "closed-before-it-is-made",
        "A peer that is closed while it is made does not start.",
        "                if self._unwanted:  # after",
        "                if False:  # after",
        ("test_peer_life.py::test_a_peer_that_is_closed_while_it_is_made_does_not_start",),
    ),
    Mutation(
        "started-again-though-closed",
        "A peer that was closed as it started is not started again: nobody could close it.",
        "if self._handle is not None or self._unwanted:",
        "if self._handle is not None:",
        ("test_peer_life.py::test_a_peer_that_was_closed_as_it_started_is_not_started_again",),
    ),
    Mutation(
        "event-of-a-program-as-the-peers-own",
        "An event of a program that is called as one of the peer's own ends no callback.",
        'case "warning", {"text": str(text)}:',
        'case "warning", {**more} if (text := more["text"]):',
        ("test_peer_events.py::test_an_event_of_a_program_that_is_called_as_the_peers_own_ends_no_callback",),
    ),
    Mutation(
        "drained-and-not-finished",
        "A sampler of a worker that has drained is finished: the loop around its epochs ends.",
        "                    batches.batch_sampler.drain()\n",
        "                    pass\n",
        ("test_peer_drains.py::test_draining_ends_the_loop_around_the_epochs_of_a_sampler",),
    ),
    Mutation(
        "drained-without-end",
        "Who asks for batches after it has drained gets none, and is refused where there is no end to that.",
        "                self._vain_steps += 1\n                if",
        "                if",
        (
            "test_peer_drains.py::test_who_counts_epochs_off_after_a_drain_comes_to_the_end_and_who_has_no_end_is_refused",
        ),
    ),
    Mutation(
        "only-copy-not-waited-for",
        "A program that ends waits until others hold what its peer alone does.",
        "        self._hand_over(handle)\n        handle.leave()",
        "        handle.leave()",
        ("handle/test_handing_over.py::test_a_peer_hands_over_before_it_leaves_however_long_that_takes",),
    ),
    Mutation(
        "waited-for-a-peer-that-stands",
        "A program that ends waits for no peer that stands still.",
        "                        handle.waiting()\n            finally:\n                future.cancel()",
        "                        pass\n            finally:\n                future.cancel()",
        ("handle/test_handing_over.py::test_a_peer_that_answers_is_waited_for_and_one_that_stands_still_is_not",),
    ),
)
