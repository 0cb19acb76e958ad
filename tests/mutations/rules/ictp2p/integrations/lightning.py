"""The rules of `ictp2p/integrations/lightning.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "further-steps-weigh-nothing",
        "A further step that a Lightning module takes with the same batch is trained with, as each other one.",
        "            since = [self._weight]\n",
        "            pass\n",
        ("integrations/test_lightning.py::test_further_steps_with_a_batch_of_a_lightning_module_count_too",),
    ),
    Mutation(
        "no-loss-weighs-as-much",
        "A batch for which a Lightning module gives no loss counts nothing.",
        "        if not pl_module.automatic_optimization:\n",
        "        if True:\n",
        ("integrations/test_lightning.py::test_a_batch_without_a_loss_counts_nothing_in_a_lightning_module",),
    ),
    Mutation(
        "no-loss-given-for-ever",
        "A leased batch for which a Lightning module gives no loss is left out of the epoch.",
        "            sampler.leave_out()\n",
        "            pass\n",
        ("integrations/test_lightning.py::test_a_leased_batch_without_a_loss_is_left_out_of_the_epoch",),
    ),
)
