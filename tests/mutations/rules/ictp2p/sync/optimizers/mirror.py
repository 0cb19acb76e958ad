"""The rules of `ictp2p/sync/optimizers/mirror.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "a-norm-of-as-many-parts-as-threads",
        "A step through a mirror map has the same bits however many threads torch takes on a host.",
        "each_alone(self.jobs())",
        "[act(*tensors) for act, tensors in self.jobs()]",
        ("sync/optimizers/test_mirror.py::test_the_bits_do_not_depend_on_the_threads_that_torch_has",),
    ),
)
