"""The rules of `ictp2p/integrations/embedded.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "trainer-begins-without-its-checkpoint",
        "A trainer that is started again goes on from the agreed state that it saved.",
        "if self._file is not None and self._file.exists():",
        "if False:",
        (
            "integrations/test_embedded.py::test_a_checkpoint_has_the_newest_agreed_state_and_another_process_goes_on_from_it",
        ),
    ),
    Mutation(
        "trainer-keeps-an-old-checkpoint",
        "A trainer's checkpoint is of the newest version that it has.",
        "self._saved = self.entered.version",
        "self._saved = self.entered.version + 1",
        (
            "integrations/test_embedded.py::test_a_checkpoint_has_the_newest_agreed_state_and_another_process_goes_on_from_it",
        ),
    ),
    Mutation(
        "broken-off-trainer-stays-entered",
        "A trainer that an error has broken off does not keep the next one of its thread from its peer.",
        "other._thread == threading.get_ident():",
        "False:",
        ("integrations/test_embedded.py::test_what_an_error_broke_off_is_left_by_the_next_one_that_its_thread_enters",),
    ),
    Mutation(
        "trainer-accumulates-otherwise",
        "A trainer that takes another number of batches per step than the sampler counts is refused.",
        "if self.sampler is not None and self.sampler.accumulate != batches:",
        "if False:",
        (
            "integrations/test_embedded.py::test_a_trainer_that_accumulates_takes_a_block_per_step_and_ends_with_its_samples",
        ),
    ),
    Mutation(
        "trainer-never-ends",
        "A trainer ends when all samples have been trained, however many epochs it would begin.",
        "return next(self._steps, self) is self or self.finished",
        "return next(self._steps, self) is self",
        (
            "integrations/test_embedded.py::test_a_trainer_that_accumulates_takes_a_block_per_step_and_ends_with_its_samples",
        ),
    ),
)
