import contextlib
import errno
import fcntl
import os
import resource
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ictp2p.concurrency import logs
from ictp2p.disk import FileDisk, MemoryDisk
from ictp2p.errors import ConfigError, FolderInUse, StateError


@pytest.fixture
def disk(tmp_path: Path):
    with FileDisk(tmp_path / "data") as disk:
        yield disk


def file_of(tmp_path: Path, key: str) -> Path:
    return tmp_path / "data" / f"{key}.ict"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["identity", "term", "acceptor"]), st.binary(max_size=200)), max_size=6))
def test_a_file_disk_remembers_what_a_memory_disk_does(disk: FileDisk, writes: list[tuple[str, bytes]]):
    memory = MemoryDisk()
    for key, value in writes:
        disk.save(key, value)
        memory.save(key, value)
        assert disk.load(key) == memory.load(key) == value


def test_values_outlive_the_process_and_nothing_is_there_before(tmp_path: Path):
    with FileDisk(tmp_path / "data") as disk:
        assert disk.load("term") is None
        disk.save("term", b"\x00\x01")
    with FileDisk(tmp_path / "data") as disk:
        assert disk.load("term") == b"\x00\x01"
    assert MemoryDisk().load("term") is None


def test_every_damaged_bit_is_noticed_and_the_file_is_named(disk: FileDisk, tmp_path: Path):
    disk.save("acceptor", b"promised 7")
    path = file_of(tmp_path, "acceptor")
    good = path.read_bytes()
    for bit in range(8 * len(good)):
        bad = bytearray(good)
        bad[bit // 8] ^= 1 << bit % 8
        path.write_bytes(bad)
        with pytest.raises(
            StateError, match=r"acceptor\.ict is corrupt: .*; give this peer an empty folder, for an older"
        ):
            disk.load("acceptor")


def test_every_truncation_is_noticed(disk: FileDisk, tmp_path: Path):
    disk.save("acceptor", b"promised 7")
    path = file_of(tmp_path, "acceptor")
    good = path.read_bytes()
    for length in range(len(good)):
        path.write_bytes(good[:length])
        with pytest.raises(StateError, match=r"corrupt: .*; give this peer an empty folder"):
            disk.load("acceptor")


def test_a_file_copied_over_another_is_noticed(disk: FileDisk, tmp_path: Path):
    disk.save("term", b"7")
    file_of(tmp_path, "acceptor").write_bytes(file_of(tmp_path, "term").read_bytes())
    with pytest.raises(StateError, match="corrupt"):
        disk.load("acceptor")


def test_a_value_is_synced_before_it_replaces_the_old_one_and_the_directory_after(
    disk: FileDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    steps: list[str] = []
    sync, replace = os.fsync, os.replace

    def fsync(descriptor: int) -> None:
        steps.append("sync " + os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")))  # noqa: PTH115, PTH119
        sync(descriptor)

    def rename(source: str, target: str, **folders: int) -> None:
        steps.append(f"rename {source} {target}")
        replace(source, target, **folders)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", rename)
    disk.save("term", b"7")
    assert steps == ["sync term.new", "rename term.new term.ict", "sync data"]


def test_a_directory_that_was_made_is_there_after_a_power_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Regression: its name was in no directory that had been synced; a promise was gone with it."""
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.readlink(f"/proc/self/fd/{descriptor}")))  # noqa: PTH115
    FileDisk(tmp_path / "made" / "data").close()
    assert synced == [str(tmp_path / "made"), str(tmp_path)]
    synced.clear()
    FileDisk(tmp_path / "made" / "data").close()
    assert synced == [str(tmp_path / "made")], "who made it may have died before"


@pytest.mark.parametrize("step", ["fsync", "rename"])
def test_a_write_that_fails_half_way_leaves_the_old_value(disk: FileDisk, monkeypatch: pytest.MonkeyPatch, step: str):
    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    disk.save("term", b"old")
    with monkeypatch.context() as patch:
        if step == "fsync":
            patch.setattr(os, "fsync", fail)
        else:
            patch.setattr(os, "replace", fail)
        with pytest.raises(StateError, match=r"cannot write .*term\.ict: No space left"):
            disk.save("term", b"new")
    assert disk.load("term") == b"old"


@contextlib.contextmanager
def without_descriptors() -> Iterator[None]:
    """Have the process use up all descriptors that it may have."""
    limits, taken = resource.getrlimit(resource.RLIMIT_NOFILE), list[int]()
    highest = max(int(each.name) for each in Path("/proc/self/fd").iterdir())
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(limits[0], highest + 8), limits[1]))
    try:
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        yield
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_a_program_that_uses_up_all_descriptors_does_not_cost_a_voter_its_disk(disk: FileDisk):
    """Regression: the peer stopped for good, as if its disk had failed; data loaders that pass tensors use up many."""
    with without_descriptors():
        for term in (b"7", b"8"):
            disk.save("term", term)
            assert disk.load("term") == term
        with pytest.raises(OSError, match="Too many open files"):
            os.open(os.devnull, os.O_RDONLY)


def test_a_disk_whose_reserve_others_took_says_so_and_has_one_again_once_there_are_descriptors(
    disk: FileDisk, monkeypatch: pytest.MonkeyPatch
):
    close = os.close
    taken: list[int] = []

    def steal(descriptor: int) -> None:
        close(descriptor)
        taken.append(os.open(os.devnull, os.O_RDONLY))

    with without_descriptors():
        monkeypatch.setattr(os, "close", steal)
        with pytest.raises(StateError, match=r"cannot write .*term\.ict: Too many open files"):
            disk.save("term", b"7")
        monkeypatch.setattr(os, "close", close)
        for descriptor in taken:
            close(descriptor)
        for term in (b"8", b"9"):
            disk.save("term", term)
    assert disk.load("term") == b"9"


def test_two_peers_cannot_share_a_directory(disk: FileDisk, tmp_path: Path):
    with pytest.raises(FolderInUse, match="in use by another peer"):
        FileDisk(tmp_path / "data")
    code = "import sys; from ictp2p.disk import FileDisk; FileDisk(sys.argv[1])"
    other = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "data")], capture_output=True, text=True, timeout=30, check=False
    )
    assert other.returncode == 1
    assert "in use by another peer" in other.stderr
    disk.close()
    FileDisk(tmp_path / "data").close()


def test_a_directory_whose_lock_file_was_deleted_is_still_in_use(disk: FileDisk, tmp_path: Path):
    """It looks stale, and who deletes it would have two peers of one identity."""
    (tmp_path / "data" / "lock").unlink()
    with pytest.raises(FolderInUse, match="in use by another peer"):
        FileDisk(tmp_path / "data")
    disk.close()
    FileDisk(tmp_path / "data").close()


def test_a_directory_is_held_where_only_files_can_be_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    lock = fcntl.flock

    def flock(descriptor: int, operation: int) -> None:
        if Path("/proc/self/fd", str(descriptor)).is_dir():
            raise OSError(errno.EBADF, "Bad file descriptor")
        lock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", flock)
    with FileDisk(tmp_path), pytest.raises(FolderInUse, match="in use by another peer"):
        FileDisk(tmp_path)


def test_whose_directory_was_deleted_writes_nothing_to_another_of_its_name(tmp_path: Path):
    """Somebody cleans up and starts anew, while the old process still runs."""
    with FileDisk(tmp_path / "data") as old:
        old.save("term", b"old")
        shutil.rmtree(tmp_path / "data")
        with FileDisk(tmp_path / "data") as new:
            new.save("term", b"new")
            with pytest.raises(StateError, match=r"cannot write .*term\.ict: No such file"):
                old.save("term", b"older")
            assert new.load("term") == b"new"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_fork_does_not_hold_the_directory_of_its_parent(tmp_path: Path):
    """The workers of a `DataLoader` are forks, and live on when the peer is closed."""
    disk = FileDisk(tmp_path)
    disk.save("term", b"7")
    ours, theirs = socket.socketpair()
    with ours, theirs:
        child = os.fork()
        if child == 0:
            with contextlib.suppress(StateError):
                disk.save("term", b"8")
            theirs.send(b"?")
            theirs.recv(1)
            os._exit(0)
        ours.recv(1)
        try:
            with pytest.raises(ConfigError, match="in use"):
                FileDisk(tmp_path)
            disk.close()
            with FileDisk(tmp_path) as again:
                assert again.load("term") == b"7"
        finally:
            ours.send(b"!")
            os.waitpid(child, 0)


def test_a_closed_disk_is_not_used(disk: FileDisk):
    disk.close()
    disk.close()
    with pytest.raises(StateError, match="closed"):
        disk.save("term", b"")
    with pytest.raises(StateError, match="closed"):
        disk.load("term")


@pytest.mark.parametrize("key", ["", "../identity", "a/b", "Term", "x" * 64, ".hidden", "nul\0"])
def test_a_key_cannot_leave_the_directory(disk: FileDisk, key: str):
    for any_disk in (disk, MemoryDisk()):
        with pytest.raises(StateError, match="is not valid"):
            any_disk.save(key, b"")
        with pytest.raises(StateError, match="is not valid"):
            any_disk.load(key)


def test_a_directory_that_cannot_be_is_a_configuration_error(tmp_path: Path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ConfigError, match=r"file' cannot be used: it is no folder"):
        FileDisk(tmp_path / "file")
    with pytest.raises(ConfigError, match=r"below' cannot be used: Not a directory"):
        FileDisk(tmp_path / "file" / "below")


def test_a_file_system_without_locks_is_not_taken_for_another_peer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(ConfigError, match=r"cannot be locked \(No locks available\)"):
        FileDisk(tmp_path)
    monkeypatch.undo()
    FileDisk(tmp_path).close()


def test_an_unreadable_value_is_named(disk: FileDisk, tmp_path: Path):
    file_of(tmp_path, "term").mkdir()
    with pytest.raises(StateError, match=r"cannot read .*term\.ict"):
        disk.load("term")


def test_a_file_that_another_made_in_advance_gets_no_key(disk: FileDisk, tmp_path: Path):
    """Regression: the key was written into it, and who had made it, or anybody, could read it."""
    planted = tmp_path / "data" / "identity.new"
    planted.touch()
    planted.chmod(0o666)
    with planted.open("rb") as others:
        disk.save("identity", b"secret")
        assert others.read() == b""
    assert file_of(tmp_path, "identity").stat().st_mode & 0o077 == 0
    assert disk.load("identity") == b"secret"


def test_a_file_that_comes_back_while_we_write_is_not_used(
    disk: FileDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Whoever may write to the folder can make it again as soon as it is gone."""
    unlink = os.unlink

    def replaced(name: str, *, dir_fd: int) -> None:
        with contextlib.suppress(FileNotFoundError):
            unlink(name, dir_fd=dir_fd)
        (tmp_path / "data" / name).touch()

    monkeypatch.setattr(os, "unlink", replaced)
    with pytest.raises(StateError, match=r"cannot write .*identity\.ict: File exists"):
        disk.save("identity", b"secret")
    assert (tmp_path / "data" / "identity.new").read_bytes() == b""


@pytest.mark.parametrize("there", [True, False])
def test_no_link_in_the_folder_is_followed(tmp_path: Path, *, there: bool):
    """Regression: what a link named was overwritten with our key, or made, or read as ours."""
    precious, folder = tmp_path / "precious", tmp_path / "data"
    folder.mkdir()
    if there:
        precious.write_text("precious")
    with FileDisk(folder) as disk:
        (folder / "identity.new").symlink_to(precious)
        disk.save("identity", b"secret")
        file_of(tmp_path, "term").symlink_to("identity.ict")
        with pytest.raises(StateError, match=r"cannot read .*term\.ict: Too many levels"):
            disk.load("term")
    (folder / "lock").unlink()
    (folder / "lock").symlink_to(precious)
    with pytest.raises(ConfigError, match="cannot be used"):
        FileDisk(folder)
    assert precious.read_text() == "precious" if there else not precious.exists()


OURS, THEIRS = 1000, 1001


@pytest.mark.parametrize(
    ("we", "owner", "refused"),
    [
        (OURS, OURS, False),
        (OURS, 0, False),
        (OURS, THEIRS, True),
        (0, THEIRS, False),  # a volume of a container
        (0, 0, False),
    ],
)
def test_a_folder_is_ours_or_root_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, we: int, owner: int, refused: bool
):
    """Regression: one that somebody else had made for us was taken, and its owner had our identity for the asking."""
    status = os.fstat

    def owned(descriptor: int) -> os.stat_result:
        mode, inode, device, links, _, *rest = status(descriptor)
        return os.stat_result((mode, inode, device, links, owner, *rest))

    with monkeypatch.context() as patch:
        patch.setattr(os, "geteuid", lambda: we)
        patch.setattr(os, "fstat", owned)
        said = rf"'{tmp_path}' belongs to user {THEIRS}.*: use one of user {OURS}"
        with pytest.raises(ConfigError, match=said) if refused else contextlib.nullcontext():
            FileDisk(tmp_path).close()
    FileDisk(tmp_path).close()  # it is not held either


def test_a_folder_that_others_may_write_to_is_used_and_named_once(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    """Many clusters have group-writable folders, and volumes of containers are anybody's."""
    shared = tmp_path / "shared"
    shared.mkdir()
    for mode in (0o700, 0o755, 0o770, 0o777):
        shared.chmod(mode)
        FileDisk(shared).close()
    FileDisk(tmp_path / "made" / "data").close()
    assert logs.flush()
    (record,) = caplog.records
    assert record.getMessage() == (
        f"data directory '{shared}' can be written by other users, who could put other files in it: chmod go-w"
    )


def test_only_the_owner_can_read_a_key(disk: FileDisk, tmp_path: Path):
    disk.save("identity", b"secret")
    assert file_of(tmp_path, "identity").stat().st_mode & 0o077 == 0
    assert (tmp_path / "data").stat().st_mode & 0o077 == 0
