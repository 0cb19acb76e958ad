"""The rules of `ictp2p/uncompiled.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "compiled-along",
        "torch.compile does not look into the methods of a group.",
        "        if isinstance(method, FunctionType):\n",
        "        if False:\n",
        ("torch_backend/test_compiled.py",),
    ),
    Mutation(
        "rounds-compiled",
        "A compiled step of the inner optimizer is not compiled together with the round behind it.",
        "    function._torchdynamo_disable = True",
        "    function._looked_into = True",
        ("sync/two_level/test_hooks.py",),
    ),
    Mutation(
        "works-looked-into",
        "A compiled function that waits for a work does not look into it.",
        "            never_compiled(method)",
        "            set_code_exec_strategy(method.__code__, _SKIP)",
        ("torch_backend/test_compiled.py::test_a_program_may_be_compiled_around_its_collectives",),
    ),
)
