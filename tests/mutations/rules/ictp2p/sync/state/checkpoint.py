"""The rules of `ictp2p/sync/state/checkpoint.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "device-replaced-by-a-file",
        "A checkpoint takes the place of a file, and of nothing else.",
        "if path.exists() and not path.is_file():",
        "if path.is_dir():",
        ("sync/state/test_checkpoint.py::test_what_is_no_file_is_not_replaced_by_one",),
    ),
    Mutation(
        "damaged-checkpoint-trained-on",
        "What only a cluster holds is loaded from a file as it was written, or not at all.",
        "if own.digest() != self._local[-1]:",
        "if False:",
        ("sync/state/test_checkpoint.py::test_no_damaged_byte_of_a_tensor_is_loaded",),
    ),
    Mutation(
        "killed-saves-fill-the-disk",
        "What those leave behind who are killed while they save is gone after the next save of that file.",
        "        _clear(path)\n",
        "",
        (
            "sync/state/test_checkpoint.py::"
            "test_what_the_killed_leave_behind_is_cleared_away_by_the_next_save_and_nothing_else",
        ),
    ),
    Mutation(
        "clears-away-what-is-being-written",
        "Of those who save one file at the same time none takes what another is writing for left behind.",
        "            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)\n            if any(",
        "            if any(",
        ("sync/state/test_checkpoint.py::test_who_saves_the_same_file_at_the_same_time_takes_nothing_from_the_other",),
    ),
)
