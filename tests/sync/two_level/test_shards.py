"""A model that each cluster shards: every shard in a mesh of its own, and no cluster trains in turns with another."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from ictp2p.errors import ConfigError, LocalGroupError, NoQuorum, PeerClosed, SiblingLost, StateError
from ictp2p.sync.cluster.siblings import Standing
from ictp2p.sync.pace import AdaptivePace
from ictp2p.sync.policies.asynchronous import AsyncDiLoCo
from ictp2p.sync.policies.diloco import DiLoCo
from ictp2p.sync.policies.noloco import NoLoCo
from ictp2p.sync.policies.streaming import StreamingDiLoCo
from ictp2p.sync.samples.sampler import ElasticSampler
from ictp2p.sync.two_level import company
from tests.sync.diloco_trace import Golden, Model, rows, same, train
from tests.sync.fake_group import Exchange
from tests.sync.policy_world import World

EVERY = 4


class Rank:
    """A rank's end of what the ranks of one cluster talk over."""

    def __init__(self, exchange: Exchange, rank: int) -> None:
        self._exchange, self.rank, self.size, self._turn = exchange, rank, exchange.size, 0
        self.said = list[Standing]()

    def all_gather(self, data: bytes) -> list[bytes]:
        self._turn += 1
        self.said.append(Standing(data[0]))
        try:
            return self._exchange.swap(self._turn, self.rank, data)
        except LocalGroupError as error:
            raise SiblingLost(str(error)) from error


class Shards:
    """Clusters whose models have two shards: a world for each, and a worker in both for each cluster.

    Those that are named with a number come once so many rounds have ended.
    """

    def __init__(self, *clusters: str, **after: int) -> None:
        self.clusters, self._after = (*clusters, *after), after
        self.worlds = [World(**dict.fromkeys(clusters, 1)) for _ in range(2)]
        self.within = {name: Exchange(2) for name in self.clusters}

    def run(self, body: Callable[[Any, Rank, str], Any]) -> dict[tuple[str, int], Any]:
        threads: list[threading.Thread] = []
        for shard, world in enumerate(self.worlds):
            for name in self.clusters:
                rank = Rank(self.within[name], shard)
                threads.append(
                    world.start(
                        f"{name}_0", lambda mesh, rank=rank, name=name: body(mesh, rank, name), self._after.get(name, 0)
                    )
                )
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive(), "a worker hangs"
        return {(name, s): w.results.get(f"{name}_0") for s, w in enumerate(self.worlds) for name in self.clusters}

    @property
    def errors(self) -> dict[tuple[str, int], BaseException]:
        return {(n.split("_")[0], s): e for s, w in enumerate(self.worlds) for n, e in w.errors.items()}


def trained(steps: int, **options: Any) -> Callable[[Any, Rank, str], Any]:
    def body(mesh: Any, rank: Rank, name: str) -> Any:
        model = Model()
        inner = torch.optim.SGD(model.parameters(), lr=0.125)
        data = rows(10 * rank.rank + ord(name[0]), steps)
        with DiLoCo(mesh, model, inner, None, EVERY, within=rank, **options):
            return train(model, inner, data)

    return body


def test_each_shard_is_trained_as_if_it_were_alone() -> None:
    found = Shards("a").run(trained(3 * EVERY))
    for shard in range(2):
        same(found["a", shard], Golden().run([[row] for row in rows(10 * shard + ord("a"), 3 * EVERY)]))


@pytest.mark.parametrize("policy", [DiLoCo, StreamingDiLoCo])
@pytest.mark.parametrize("without", [{}, {1: {"b"}}, {1: {"b"}, 4: {"a"}}], ids=["none", "once", "twice"])
def test_each_shard_is_agreed_on_whatever_its_siblings_do(policy: Any, without: dict[int, set[str]]) -> None:
    shards = Shards("a", "b")
    shards.worlds[0].absent = without
    more = {"fragments": 1, "overlap": 1} if policy is StreamingDiLoCo else {}

    def body(mesh: Any, rank: Rank, name: str) -> dict[int, str]:
        model, held = Model(), {}
        inner = torch.optim.SGD(model.parameters(), lr=0.125)
        with policy(mesh, model, inner, None, EVERY, within=rank, **more) as used:
            for row in rows(1, 12 * EVERY):
                train(model, inner, [row])
                held[used.version] = used.digest()
        return held

    found = shards.run(body)
    assert not shards.errors
    for shard in range(2):
        common = found["a", shard].keys() & found["b", shard].keys()
        assert len(common) > 5
        assert all(found["a", shard][version] == found["b", shard][version] for version in common)


@pytest.mark.parametrize("apart", [-9.0, 9.0])
def test_rounds_that_were_only_attended_change_nothing(monkeypatch: pytest.MonkeyPatch, apart: float) -> None:
    monkeypatch.setattr(company, "_MUCH", apart)
    found = Shards("a").run(trained(3 * EVERY))
    for shard in range(2):
        same(found["a", shard], Golden().run([[row] for row in rows(10 * shard + ord("a"), 3 * EVERY)]))


@pytest.mark.parametrize("ours", [(3.0, 1.0), (0.0, 4.0)])
def test_what_the_ranks_of_a_model_count_is_the_same_for_each_of_its_shards(
    monkeypatch: pytest.MonkeyPatch, ours: tuple[float, float]
) -> None:
    """Regression: each shard had its own rank's weight, though FSDP's gradient is of the batches of all of them."""
    monkeypatch.setattr(company, "_PATIENCE", 60.0)  # no round is attended, which would pair other phases
    monkeypatch.setattr(company, "_MUCH", 1e9)
    weights = {"a": ours, "b": (1.0, 2.0)}

    def body(mesh: Any, rank: Rank, name: str) -> Any:
        model = Model()
        inner = torch.optim.SGD(model.parameters(), lr=0.125)
        with DiLoCo(mesh, model, inner, None, EVERY, within=rank) as policy:
            policy.weight = weights[name][rank.rank]
            return train(model, inner, rows(ord(name), 3 * EVERY))

    shards = Shards("a", "b")
    found = shards.run(body)
    assert not shards.errors
    same(found["a", 0], found["a", 1])
    same(found["b", 0], found["b", 1])


def test_a_schedule_is_at_the_same_on_all_ranks_whatever_their_rounds_were() -> None:
    """Regression: it followed the rounds of each shard, and so the learning rates of one model differed."""
    shards = Shards("a", "b")
    shards.worlds[1].absent = {1: {"b"}}
    shards.worlds[0].aborts = {3}

    def body(mesh: Any, rank: Rank, name: str) -> list[int]:
        model = Model()
        inner = torch.optim.SGD(model.parameters(), lr=0.125)
        with DiLoCo(mesh, model, inner, None, EVERY, within=rank) as policy:
            seen = [policy.schedule_step]
            for row in rows(1, 8 * EVERY):
                train(model, inner, [row])
                seen.append(policy.schedule_step)
        return seen

    found = shards.run(body)
    assert not shards.errors
    for name in "ab":
        assert found[name, 0] == found[name, 1] == sorted(found[name, 0])
        assert found[name, 0][-1] >= 7 * EVERY


def test_all_meet_whenever_they_are_entered() -> None:
    def body(mesh: Any, rank: Rank, name: str) -> list[Standing]:
        model = Model()
        inner = torch.optim.SGD(model.parameters(), lr=0.125)
        policy = DiLoCo(mesh, model, inner, None, EVERY, within=rank)
        for _ in range(2):
            rank.said.clear()
            with policy:
                entered = rank.said.copy()
                train(model, inner, rows(1, EVERY))
        return entered

    assert all(said[-2:] == [Standing.LANDED, Standing.BEGINS] for said in Shards("a").run(body).values())


def test_a_round_that_was_attended_and_missed_is_not_made_up_for_before_the_next_boundary(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Regression: the one rank was at a round of its own, in the middle of the others' phase, and all stopped."""
    monkeypatch.setattr(company, "_MUCH", -9.0)
    shards = Shards("a", "b")
    shards.worlds[1].absent = {2: {"a"}, 3: {"a"}}
    shards.run(trained(8 * EVERY))
    assert not shards.errors


def test_a_round_that_was_attended_and_missed_leaves_nothing_due() -> None:
    world, landed = World(a=1, b=1), threading.Barrier(2)
    world.absent = {1: {"a"}}

    def body(mesh: Any) -> tuple[bool, int]:
        model = Model()
        inner = torch.optim.SGD(model.parameters(), lr=0.125)
        with DiLoCo(mesh, model, inner, None, EVERY) as policy:
            train(model, inner, rows(1, EVERY))
            landed.wait(30)
            if mesh.cluster == "a":
                policy._loop._groups.run(policy._outer_round._attend)
            else:
                train(model, inner, rows(1, EVERY))
            return policy.progress.due, policy.version

    found = world.run(a_0=body, b_0=body)
    assert found["a_0"] == found["b_0"] == (False, 3)


def written(folder: Path) -> Callable[[int, int], Path]:
    """Files of both shards, as they are after so many phases and steps."""

    def path(shard: int, steps: int) -> Path:
        return folder / f"{shard}.{steps}"

    def body(mesh: Any, rank: Rank, name: str) -> None:
        model = Model()
        inner = torch.optim.SGD(model.parameters(), lr=0.125)
        with DiLoCo(mesh, model, inner, None, EVERY, within=rank) as policy:
            for steps, row in enumerate(rows(1, 4 * EVERY)):
                policy.save(path(rank.rank, steps))
                train(model, inner, [row])

    Shards("a").run(body)
    return path


def begun(*files: Path | None) -> Shards:
    """What becomes of a cluster whose ranks begin from these."""
    shards = Shards("a")

    def body(mesh: Any, rank: Rank, name: str) -> None:
        model = Model()
        inner = torch.optim.SGD(model.parameters(), lr=0.125)
        policy = DiLoCo(mesh, model, inner, None, EVERY, within=rank)
        if (file := files[rank.rank]) is not None:
            policy.load(file)
        with policy:
            train(model, inner, rows(1, EVERY))

    shards.run(body)
    return shards


def test_shards_begin_from_one_time_or_not_at_all(tmp_path: Path) -> None:
    """Regression: a model went on from shards of different rounds, or from one and fresh weights, without a word."""
    path = written(tmp_path)
    for files, words in (
        ((path(0, 3 * EVERY), path(1, EVERY)), f"trained for {3 * EVERY} steps, and rank 1 from one of {EVERY}"),
        ((path(0, 3 * EVERY), None), f"trained for {3 * EVERY} steps, and rank 1 from fresh weights"),
        ((None, path(1, 3 * EVERY)), "rank 1 of this cluster begins from a shard of the model that was trained for"),
    ):
        errors = begun(*files).errors
        assert len(errors) == 2
        assert all(isinstance(error, ConfigError) and words in str(error) for error in errors.values())


@pytest.mark.parametrize(("steps", "warned"), [((9, 9), False), ((9, 6), True)])
def test_shards_of_one_phase_go_on(tmp_path: Path, steps: tuple[int, int], warned: bool) -> None:
    path = written(tmp_path)
    shards = begun(path(0, steps[0]), path(1, steps[1]))
    assert not shards.errors
    told = [str(fields["text"]) for world in shards.worlds for _, kind, fields in world.events if kind == "warning"]
    assert sum("not written at the same step" in text for text in told) == 2 * warned


def test_a_mesh_that_is_further_takes_no_notice_of_old_files(tmp_path: Path) -> None:
    path = written(tmp_path)
    shards = Shards("a", b=1)

    def body(mesh: Any, rank: Rank, name: str) -> int:
        model = Model()
        inner = torch.optim.SGD(model.parameters(), lr=0.125)
        policy = DiLoCo(mesh, model, inner, None, EVERY, within=rank)
        policy.load(path(rank.rank, EVERY if name == "b" and rank.rank else 3 * EVERY))
        with policy:
            train(model, inner, rows(1, 3 * EVERY if name == "a" else EVERY))
        return policy.rounds

    found = shards.run(body)
    assert not shards.errors
    assert min(found.values()) > 3


def test_who_is_refused_with_its_file_has_its_siblings_told(tmp_path: Path) -> None:
    """Regression: they trained on to their first step, and waited there for as long as their group does."""
    path = written(tmp_path)
    shards = Shards("b", a=1)

    def body(mesh: Any, rank: Rank, name: str) -> None:
        model = Model()
        inner = torch.optim.SGD(model.parameters(), lr=0.125)
        policy = DiLoCo(mesh, model, inner, None, EVERY, within=rank)
        if (name, rank.rank) == ("a", 0):
            policy.load(path(0, 3 * EVERY))  # the mesh was founded without it, and is not so far
        with policy:
            train(model, inner, rows(1, 2 * EVERY))

    shards.run(body)
    assert isinstance(shards.errors["a", 0], StateError)
    assert isinstance(shards.errors["a", 1], SiblingLost)
    assert "rank 0 of this cluster, which holds another shard of its model, has stopped" in str(shards.errors["a", 1])


def test_a_shard_that_stops_is_no_shard_that_is_waited_for() -> None:
    shards = Shards("a")
    shards.worlds[1].faults["a/0", "outer_round", 1] = lambda: NoQuorum("lost")
    shards.run(trained(4 * EVERY, without_quorum="stop"))
    assert isinstance(shards.errors["a", 1], NoQuorum)
    assert isinstance(shards.errors["a", 0], SiblingLost)
    assert "rank 1 of this cluster" in str(shards.errors["a", 0])


@pytest.mark.parametrize("sees", ["before the step", "in it"])
def test_who_stops_says_so_where_its_siblings_listen_and_nowhere_else(sees: str) -> None:
    """Regression: in a step its word came between the collectives of FSDP, and gloo ended the process for it."""
    shards = Shards("a")
    turns: dict[tuple[str, int], int] = {}

    def body(mesh: Any, rank: Rank, name: str) -> None:
        model = Model()
        inner = torch.optim.SGD(model.parameters(), lr=0.125)
        with DiLoCo(mesh, model, inner, None, EVERY, within=rank):
            train(model, inner, rows(1, 2))
            if rank.rank == 1 and sees == "before the step":
                inner.add_param_group({"params": [torch.nn.Parameter(torch.ones(1))]})
            elif rank.rank == 1:
                mesh.roster_moves = closed
            turns["before", rank.rank] = rank._turn
            try:
                train(model, inner, rows(1, 1))
            except (ConfigError, PeerClosed):
                turns["after", rank.rank] = rank._turn
                raise

    def closed(generation: object) -> bool:
        raise PeerClosed("the peer is closed")

    shards.run(body)
    assert turns["after", 1] - turns["before", 1] == 1
    if sees == "before the step":
        assert "rank 1 of this cluster" in str(shards.errors["a", 0])


def test_a_shard_without_a_quorum_has_its_siblings_wait_with_it() -> None:
    """Not in a collective of the model's, whose time would run out."""
    shards = Shards("a")
    for attempt in range(1, 4):
        shards.worlds[1].faults["a/0", "outer_round", attempt] = lambda: NoQuorum("lost")
    found = shards.run(trained(3 * EVERY))
    for shard in range(2):
        same(found["a", shard], Golden().run([[row] for row in rows(10 * shard + ord("a"), 3 * EVERY)]))


def test_all_leave_at_the_same_step_if_one_is_asked_to() -> None:
    shards = Shards("a")

    def body(mesh: Any, rank: Rank, name: str) -> tuple[int, bool | None]:
        model = Model()
        inner = torch.optim.SGD(model.parameters(), lr=0.125)
        with DiLoCo(mesh, model, inner, None, EVERY, within=rank) as policy:
            for row in rows(1, 9 * EVERY):
                if mesh.left_together:
                    break
                train(model, inner, [row])
                mesh.leaves = mesh.leaves or (rank.rank == 1 and policy.progress.step == EVERY + 2)
        return policy.progress.step, mesh.left_together

    assert set(shards.run(body).values()) == {(2 * EVERY, True)}


def test_who_has_trained_to_the_end_leaves_by_itself_again() -> None:
    """Regression: a peer whose sharded policy had ended never came to have drained."""

    def body(mesh: Any, rank: Rank, name: str) -> list[bool | None]:
        trained(EVERY)(mesh, rank, name)
        return [mesh.left_together]

    assert list(Shards("a").run(body).values()) == [[None], [None]]


def test_a_shard_has_one_worker_in_a_cluster() -> None:
    world, exchange = World(a=2), Exchange(1)

    def body(mesh: Any) -> None:
        model = Model()
        inner = torch.optim.SGD(model.parameters(), lr=0.125)
        with DiLoCo(mesh, model, inner, None, EVERY, within=Rank(exchange, 0)):
            pass

    with pytest.raises((ConfigError, PeerClosed)):
        world.run(a_0=body, a_1=body)
    assert any("2 workers of cluster a hold the same shard" in str(error) for error in world.errors.values())


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        (DiLoCo, {"within": "all"}, "within 'all' is neither a torch process group nor a device mesh"),
        (DiLoCo, {"sampler": ElasticSampler(4, 2)}, "a sampler leases samples in one mesh"),
        (DiLoCo, {"sync_every": AdaptivePace(10)}, "an AdaptivePace is agreed in one mesh"),
        (DiLoCo, {"outer_schedule": lambda rounds: 1.0}, "outer_schedule is of the rounds of one mesh"),
        (AsyncDiLoCo, {"clusters": 2}, "give proportional=False"),
        (NoLoCo, {}, "rounds by pairs are drawn in one mesh"),
    ],
)
def test_what_does_not_go_with_shards_is_refused(kind: Any, options: dict[str, Any], message: str) -> None:
    model = Model()
    inner = torch.optim.SGD(model.parameters(), lr=0.125)
    options = {"within": Rank(Exchange(1), 0), **options}
    with pytest.raises(ConfigError, match=message):
        World(a=1).run(a_0=lambda mesh: kind(mesh, model, inner, **{"sync_every": EVERY, **options}))
