"""The rules of `ictp2p/disk.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "lock-file-alone",
        "Two processes never have one data folder, though somebody deleted its lock file.",
        "        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)\n",
        "        pass\n",
        ("test_disk.py::test_a_directory_whose_lock_file_was_deleted_is_still_in_use",),
    ),
    Mutation(
        "folder-of-the-same-name",
        "A peer writes to the folder that it locked, and not to another one that stands in its place.",
        "        folder, fresh = self._held[0],",
        "        self._held[0] = os.open(self._directory, os.O_RDONLY)\n        folder, fresh = self._held[0],",
        ("test_disk.py::test_whose_directory_was_deleted_writes_nothing_to_another_of_its_name",),
    ),
    Mutation(
        "no-descriptor-in-reserve",
        "A program that uses up all descriptors does not cost its peer the disk, and the mesh a voter.",
        "        if 0 < len(self._held) < _WITH_RESERVE:\n",
        "        if False:\n",
        ("test_disk.py::test_a_program_that_uses_up_all_descriptors_does_not_cost_a_voter_its_disk",),
    ),
    Mutation(
        "key-in-a-stranger-s-file",
        "A value is written to a file of our own making, and not to one that stood there.",
        "os.O_WRONLY | os.O_CREAT | os.O_EXCL)",
        "os.O_WRONLY | os.O_CREAT | os.O_TRUNC)",
        ("test_disk.py::test_a_file_that_comes_back_while_we_write_is_not_used",),
    ),
    Mutation(
        "folder-of-anybody",
        "A folder that somebody else owns is refused, unless it was given to root.",
        "    if me not in {_ROOT, found.st_uid} and found.st_uid != _ROOT:\n",
        "    if False:\n",
        ("test_disk.py::test_a_folder_is_ours_or_root_s",),
    ),
    Mutation(
        "no-fsync",
        "What `save` has returned from survives a power cut: data, rename and directory are synced.",
        "                os.fsync(file.fileno())\n",
        "",
        ("test_disk.py::test_a_value_is_synced_before_it_replaces_the_old_one_and_the_directory_after",),
    ),
)
