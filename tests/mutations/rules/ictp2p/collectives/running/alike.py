"""The rules of `ictp2p/collectives/running/alike.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "each-its-own-nan",
        "A sum that everybody makes by itself has the same bits everywhere, also where it is no number.",
        "        total = np.where(np.isnan(total), dtype.type(np.nan), total)\n",
        "        pass\n",
        ("collectives/running/test_one_shot.py::test_every_nan_has_the_same_bits",),
    ),
    Mutation(
        "one-nan-before-it-is-narrowed",
        "A NaN has the same bits everywhere after it was narrowed, whatever the processor made of it.",
        "        settle(narrow, total)\n",
        "        narrow = total.masked_fill_(torch.isnan(total), torch.nan).to(target.dtype)\n",
        ("collectives/running/test_alike.py::test_results_have_the_same_bits_on_every_processor",),
    ),
    Mutation(
        "flushes-subnormals",
        "A sum that everybody makes by itself does not depend on the mode of its thread.",
        "    torch.set_flush_denormal(False)\n",
        "",
        ("collectives/running/test_one_shot.py::test_subnormals_count_even_in_a_thread_that_flushes_them",),
    ),
)
