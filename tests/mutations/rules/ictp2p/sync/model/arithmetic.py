"""The rules of `ictp2p/sync/model/arithmetic.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "divergence-shared",
        "Parameters that hold NaN or infinity are brought to nobody.",
        "if math.isfinite(sum(view.sum().item() for view in views.values())):",
        "if views:",
        ("sync/state/test_hostile_models.py::test_a_cluster_that_diverged_brings_nothing_to_the_others",),
    ),
    Mutation(
        "negative-variance",
        "A variance stays one, whatever a lossy codec made of its mean.",
        "        agreed.clamp_(min=0.0)\n",
        "        pass\n",
        ("sync/state/test_hostile_models.py::test_a_variance_stays_one_whatever_a_codec_made_of_its_mean",),
    ),
    Mutation(
        "infinity-minus-itself",
        "A buffer that holds infinity and is as it was brings no difference.",
        "same = base == view if masks else None",
        "same = None",
        ("sync/state/test_hostile_models.py::test_a_cluster_that_missed_a_round_keeps_what_is_infinite",),
    ),
)
