from __future__ import annotations

import errno
import json
import os
import pathlib
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from ictp2p.errors import ConfigError, LocalProtocolError, StateError, shown
from ictp2p.sync.policies.diloco import DiLoCo
from ictp2p.sync.policies.streaming import StreamingDiLoCo
from ictp2p.sync.state.checkpoint import Checkpoint


def net(width: int = 3) -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(2, width), torch.nn.BatchNorm1d(width), torch.nn.Linear(width, 1))


class Training:
    """One worker that trains some steps, and may start from a file and leave one."""

    def __init__(self, steps: int, seed: int = 0, start: Any = None, file: Any = None, **save: Any) -> None:
        self.model = net()
        self.inner = torch.optim.AdamW(self.model.parameters(), lr=0.1)
        self._steps, self._start, self._file, self._save = steps, start, file, save
        self._rows = torch.Generator().manual_seed(seed)

    def __call__(self, mesh: Any) -> DiLoCo:
        policy = DiLoCo(mesh, self.model, self.inner, sync_every=4)
        if self._start is not None:
            policy.load(self._start)
        with policy:
            for _ in range(self._steps):
                self.step()
            if self._file is not None:
                policy.save(self._file, **self._save)
        return policy

    def step(self) -> None:
        self.inner.zero_grad()
        self.model(torch.randn(8, 2, generator=self._rows)).square().mean().backward()
        self.inner.step()


def test_a_mesh_of_other_clusters_goes_on_from_the_file(make_world: Any, tmp_path: pathlib.Path) -> None:
    """Stopped as two clusters, started as three, of which only the founder has the file: momentum and rounds go on."""
    file = tmp_path / "at.safetensors"
    found = make_world(a=1, b=1).run(a_0=Training(8, 1, file=file), b_0=Training(8, 2))
    before = found["a_0"].state
    assert (before.version, before.counters) == (3, {"round": 2})
    founder = Training(0, start=file)
    again = founded(make_world(a=1, c=1, d=1), founder, Training(0), Training(0))
    assert {policy.state.digest for policy in again.values()} == {before.digest}
    assert {(policy.version, policy.state.counters["round"]) for policy in again.values()} == {(1, 2)}


def founded(world: Any, first: Training, *others: Training) -> dict[str, Any]:
    """Run one in cluster a, which founds the mesh, and the others in c, d."""
    agreed = threading.Event()

    def founder(mesh: Any) -> DiLoCo:
        offered, mesh.first_state = mesh.first_state, lambda *args: agreed.set() or offered(*args)
        return first(mesh)

    def after(other: Training) -> Callable[[Any], DiLoCo]:
        def run(mesh: Any) -> DiLoCo:
            assert agreed.wait(20)
            with world.changed:
                assert world.changed.wait_for(lambda: world.version > 0, 20)
            return other(mesh)

        return run

    bodies = {f"{name}_0": after(other) for name, other in zip("cd", others, strict=False)}
    return world.run(a_0=founder, **bodies)


def test_a_mesh_that_was_founded_without_the_file_is_refused(make_world: Any, tmp_path: pathlib.Path) -> None:
    file = saved(make_world, tmp_path)
    with pytest.raises(StateError, match="checkpoint is of round 1, but the mesh is at round 0"):
        founded(make_world(a=1, c=1), Training(0), Training(0, start=file))


def test_a_file_of_this_very_mesh_is_held_as_the_version_that_it_is(make_world: Any, tmp_path: pathlib.Path) -> None:
    """So a mesh that has lost its state can tell the newest file from those that most workers bring."""
    file, world = tmp_path / "at.safetensors", make_world(a=1)
    world.lineage = b"ourchain"
    world.run(a_0=Training(8, file=file))

    def held_in(lineage: bytes) -> tuple[int, bytes]:
        again = make_world(a=1)
        again.lineage = lineage

        def body(mesh: Any) -> tuple[int, bytes]:
            told, first = [], mesh.first_state
            mesh.first_state = lambda *args: told.append(world_state(again)) or first(*args)
            Training(0, start=file)(mesh)
            return told[0]

        return again.run(a_0=body)["a_0"]

    digest = Checkpoint(file).digest
    assert held_in(b"ourchain") == (3, digest)
    assert held_in(b"another.") == held_in(b"") == (0, digest)


def world_state(world: Any) -> tuple[int, bytes]:
    """What others can have of the only worker."""
    (state,) = world.states.values()
    return state.held()


def test_a_file_that_this_very_mesh_gave_up_is_no_error(make_world: Any, tmp_path: pathlib.Path) -> None:
    """Regression: whoever came too late for the decision to go back ended with an error, though it may go on as all."""
    file, first = tmp_path / "at.safetensors", make_world(a=1)
    first.lineage = b"ourchain"
    first.run(a_0=Training(4, file=file))
    world = make_world(a=1, c=1)
    world.lineage = b"ourchain"
    policies = founded(world, Training(0), Training(0, start=file))
    assert policies["c_0"].digest() == policies["a_0"].digest()
    (told,) = [fields["text"] for name, kind, fields in world.events if kind == "warning"]
    assert "checkpoint is of round 1, but the mesh is at round 0: it went back" in told


def test_resuming_all_is_as_if_nothing_had_been_stopped(make_world: Any, tmp_path: pathlib.Path) -> None:
    """With the cluster's own part: the same bits as one uninterrupted training."""
    file = tmp_path / "at.safetensors"
    whole = Training(14)
    uninterrupted = make_world(a=1).run(a_0=whole)["a_0"]
    first = Training(8, file=file, local=True)
    make_world(a=1).run(a_0=first)
    second = Training(6, start=file)
    second._rows.set_state(first._rows.get_state())
    resumed = make_world(a=1).run(a_0=second)["a_0"]
    for ours, theirs in zip(second.model.state_dict().values(), whole.model.state_dict().values(), strict=True):
        assert torch.equal(ours, theirs)
    assert resumed.digest() == uninterrupted.digest()
    assert resumed.version == uninterrupted.version - 2, "versions are the mesh's, and it is a new one"


def test_the_file_has_the_models_own_names(make_world: Any, tmp_path: pathlib.Path) -> None:
    file = tmp_path / "at.safetensors"
    training = Training(4, file=file)
    policy = make_world(a=1).run(a_0=training)["a_0"]
    tensors = load_file(file)
    for name, tensor in policy.global_parameters().items():
        held = tensors.get(name, tensors.get(f"buffer {name}"))
        assert held is not None
        assert torch.equal(held, tensor)
    assert "outer momentum_buffer of 0.weight" in tensors


def saved(make_world: Any, path: pathlib.Path, **options: Any) -> pathlib.Path:
    file = path / "at.safetensors"
    make_world(a=1).run(a_0=Training(4, file=file, **options))
    return file


def fresh(width: int = 3, sync_every: int = 4, **options: Any) -> DiLoCo:
    model = net(width)
    return DiLoCo(None, model, torch.optim.AdamW(model.parameters(), lr=0.1), sync_every=sync_every, **options)  # type: ignore[arg-type]


def test_another_trainings_file_is_refused_by_the_first_difference(make_world: Any, tmp_path: pathlib.Path) -> None:
    file = saved(make_world, tmp_path)
    mend = "Give what it was written with, or begin a new mesh from its weights alone"
    for policy, match in (
        (fresh(width=4), r"\[3, 2\] there$"),
        (fresh(sync_every=5), f": sync_every: 5 here, 4 there. {mend}"),
        (fresh(codec="int8"), f": codec: int8 here, none there. {mend}"),
        (fresh(mix=0.5, overlap=1), f": overlap: 1 here, 0 there. {mend}"),
    ):
        before = policy.digest()
        with pytest.raises(ConfigError, match=match):
            policy.load(file)
        assert policy.digest() == before


def flip(file: pathlib.Path) -> None:
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)


def cut(file: pathlib.Path) -> None:
    file.write_bytes(file.read_bytes()[:-10])


def renumber(file: pathlib.Path) -> None:
    words = json.loads(safe_open(file, "pt").metadata()["ictp2p"])
    save_file(load_file(file), file, {"ictp2p": json.dumps({**words, "format": 1})})


def foreign(file: pathlib.Path) -> None:
    save_file({"w": torch.zeros(2)}, file)


def empty(file: pathlib.Path) -> None:
    file.write_bytes(b"")


@pytest.mark.parametrize("damage", [flip, cut, renumber, foreign, empty, pathlib.Path.unlink])
def test_a_damaged_file_is_refused_and_named(
    make_world: Any, tmp_path: pathlib.Path, damage: Callable[[pathlib.Path], None]
) -> None:
    file = saved(make_world, tmp_path)
    damage(file)
    policy = fresh()
    before = policy.digest()
    with pytest.raises(StateError, match=r"at\.safetensors"):
        policy.load(file)
    assert policy.digest() == before
    pairs = zip(policy.global_parameters().values(), fresh().global_parameters().values(), strict=True)
    assert all(torch.equal(ours, theirs) for ours, theirs in pairs)


@pytest.mark.parametrize("path", [None, 3, b"at.safetensors", "", "a\0b", "\ud800", torch.zeros(2)])
def test_a_name_that_no_file_can_have_is_refused(path: Any) -> None:
    """Regression: it was a `TypeError`, or a `ValueError`, of whatever was called with it."""
    policy = fresh()
    for use in (policy.save, policy.load):
        with pytest.raises(ConfigError, match="is not valid as the name of a checkpoint") as refused:
            use(path)
        assert str(refused.value).startswith(shown(path))


def test_a_folder_is_no_checkpoint_and_called_one(tmp_path: pathlib.Path) -> None:
    """Regression: it was said that there is no such device."""
    with pytest.raises(StateError, match=f"{tmp_path} is no checkpoint, but a folder"):
        fresh().load(tmp_path)


def test_what_is_no_file_is_not_replaced_by_one(tmp_path: pathlib.Path) -> None:
    """Regression: as root one could save to `/dev/null`, which was a file from then on."""
    place = tmp_path / "pipe"
    os.mkfifo(place)
    for what in (place, tmp_path):
        with pytest.raises(StateError, match=f"{what} could not be written: what has that name is no file"):
            fresh().save(what)
    assert place.is_fifo()
    assert [p.name for p in tmp_path.iterdir()] == ["pipe"]


def test_weights_alone_are_no_checkpoint_and_it_is_said_what_to_do_with_them(tmp_path: pathlib.Path) -> None:
    """Regression: `KeyError: 'ictp2p'` was all that was said."""
    file = tmp_path / "weights.safetensors"
    save_file(torch.nn.Linear(2, 2).state_dict(), file)
    with pytest.raises(StateError, match=r"is no checkpoint: it holds tensors .* its load_state_dict"):
        fresh().load(file)


def test_a_file_is_whole_or_not_there(make_world: Any, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = saved(make_world, tmp_path)
    content = file.read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StateError, match=r"at.safetensors could not be written: .*No space"):
        fresh().save(file)
    assert file.read_bytes() == content
    assert [p.name for p in tmp_path.iterdir()] == [file.name]


def killed_while_it_saves(path: pathlib.Path) -> None:
    """Save in a process that is killed once all bytes are in a file, and none of them in their place."""
    if (child := os.fork()) == 0:
        try:
            os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL)
            fresh().save(path)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def test_what_the_killed_leave_behind_is_cleared_away_by_the_next_save_and_nothing_else(tmp_path: pathlib.Path) -> None:
    """Regression: each left as many bytes as its model has, under a name that nobody knew, until the disk was full."""
    file, other = tmp_path / "at[1].safetensors", tmp_path / "at1.safetensors"
    for path in (other, file, file):
        killed_while_it_saves(path)
    left = [*tmp_path.iterdir()]
    assert len(left) == 2, "the second that was killed had cleared away what the first had left"
    fresh().save(file)
    assert [p.name for p in tmp_path.iterdir() if p not in left] == [file.name]
    assert [p.name.startswith(".at1.") for p in left if p.exists()] == [True]


def test_who_saves_the_same_file_at_the_same_time_takes_nothing_from_the_other(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, made = tmp_path / "at.safetensors", os.fsync

    def meanwhile(descriptor: int) -> None:
        monkeypatch.setattr(os, "fsync", made)
        fresh().save(file)
        made(descriptor)

    monkeypatch.setattr(os, "fsync", meanwhile)
    fresh().save(file)
    assert [p.name for p in tmp_path.iterdir()] == [file.name]


@pytest.mark.parametrize("fragments", [1, 2])
def test_a_file_that_is_written_while_a_round_is_committed_is_of_one_version(
    make_world: Any, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, fragments: int
) -> None:
    """By a thread beside training: the round is committed when the first tensor has been copied."""
    file, made = tmp_path / "at.safetensors", torch.Tensor.clone

    def body(mesh: Any) -> tuple[str, dict[str, torch.Tensor]]:
        model = net()
        inner = torch.optim.SGD(model.parameters(), lr=0.1)

        def trains(tensor: torch.Tensor) -> torch.Tensor:
            monkeypatch.setattr(torch.Tensor, "clone", made)
            for _ in range(2):
                model(torch.ones(8, 2)).square().mean().backward()
                inner.step()
            return made(tensor)

        with StreamingDiLoCo(mesh, model, inner, sync_every=2, fragments=fragments, overlap=0) as policy:
            monkeypatch.setattr(torch.Tensor, "clone", trains)
            policy.save(file)
            assert policy.version > 1
            return policy.state.contents.hex(), policy.global_parameters()

    contents, parameters = make_world(a=1).run(a_0=body)["a_0"]
    assert Checkpoint(file).digest.hex() == contents
    found = load_file(file)
    assert all(torch.equal(value, parameters[name]) for name, value in found.items() if name in parameters)


@pytest.mark.parametrize("local", [False, True])
def test_no_damaged_byte_of_a_tensor_is_loaded(make_world: Any, tmp_path: pathlib.Path, local: bool) -> None:
    """Neither of the agreed state, nor of what only the cluster holds."""
    file = saved(make_world, tmp_path, local=local)
    good = file.read_bytes()
    places = [index for name, start, stop in spans(good) for index in (start, stop - 1) if start < stop]
    assert len(places) > 10
    for place in places:
        file.write_bytes(good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :])
        policy = fresh()
        before = {name: tensor.clone() for name, tensor in policy.state.committed.items()}
        with pytest.raises(StateError, match="digest"):
            policy.load(file)
        assert all(torch.equal(tensor, before[name]) for name, tensor in policy.state.committed.items())
    file.write_bytes(good)
    fresh().load(file)


def spans(content: bytes) -> list[tuple[str, int, int]]:
    """Where each tensor of a safetensors file lies."""
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    return [
        (n, 8 + size + a, 8 + size + b)
        for n, t in header.items()
        if "data_offsets" in t
        for a, b in [t["data_offsets"]]
    ]


def test_a_folder_that_is_not_there_is_named(tmp_path: pathlib.Path) -> None:
    with pytest.raises(StateError, match="nowhere"):
        fresh().save(tmp_path / "nowhere" / "at.safetensors")


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.ENOSPC, errno.ENOTDIR])
def test_a_folder_in_which_nothing_can_be_written_is_named_whatever_the_reason(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Regression: on a read-only file system what was to clear up raised an OSError of its own."""

    def refuse(path: object, *args: object, **kwargs: object) -> None:
        raise OSError(number, os.strerror(number), path)

    for name in ("mkdir", "open", "unlink"):
        monkeypatch.setattr(os, name, refuse)
    with pytest.raises(StateError, match=rf"at\.safetensors could not be written: .*{os.strerror(number)}"):
        fresh().save(tmp_path / "at.safetensors")


def test_a_policy_that_has_loaded_half_a_checkpoint_is_not_entered(make_world: Any, tmp_path: pathlib.Path) -> None:
    """Regression: it began with what was loaded so far, and nothing was compared with what the model had become."""
    file = saved(make_world, tmp_path, local=True)

    def body(mesh: Any) -> None:
        model = net()
        policy = DiLoCo(mesh, model, torch.optim.Adam(model.parameters()), sync_every=4)
        with pytest.raises(ConfigError, match="does not fit"):
            policy.load(file)
        with pytest.raises(LocalProtocolError, match="a checkpoint was loaded in part"), policy:
            """It is not entered."""

    make_world(a=1).run(a_0=body)


def test_loading_into_a_running_training_is_refused(make_world: Any, tmp_path: pathlib.Path) -> None:
    file = saved(make_world, tmp_path)

    def body(mesh: Any) -> None:
        model = net()
        policy = DiLoCo(mesh, model, torch.optim.SGD(model.parameters()), sync_every=4)
        with policy, pytest.raises(LocalProtocolError, match="before"):
            policy.load(file)

    make_world(a=1).run(a_0=body)


def test_what_stands_in_a_file_can_be_asked(make_world: Any, tmp_path: pathlib.Path) -> None:
    found = Checkpoint(saved(make_world, tmp_path))
    assert (found.version, found.counters) == (2, {"round": 1})
    assert found.local() is None
