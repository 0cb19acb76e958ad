"""`Peer` and the policies as a user has them: what clusters hold in common, and what travels between them."""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest
import torch

import ictp2p
from ictp2p.errors import ConfigError, MeshMismatch
from ictp2p.sync.two_level.policy import Policy
from tests.trainers import Together, Worker, config, finish, same_bits, start


def of_five(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rounds in which five clusters took part."""
    return [e for e in events if e["kind"] == "round_committed" and len(e["participants"]) == 5]


def test_what_is_of_another_kind_is_named_at_once() -> None:
    with pytest.raises(ConfigError, match=r"must be an ictp2p.Config, .*not \{'cluster': 'a'\}"):
        ictp2p.Peer({"cluster": "a"})  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="callback None is not callable"):
        ictp2p.Peer(config("a")).on_event(None)  # type: ignore[arg-type]


@pytest.mark.parametrize("handed_on", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_peer_stays_in_its_process(handed_on: Callable[[object], object]) -> None:
    """Regression: who handed one to a DataLoader's workers was told of a `__cinit__`, of the event loop's."""
    peer = ictp2p.Peer(config("a"))
    with pytest.raises(TypeError, match="<Peer a not started> stays in the process that made it"):
        handed_on(peer)


def test_two_clusters_hold_the_same_bits_at_every_version(pool: ThreadPoolExecutor) -> None:
    with ictp2p.Peer(config("a")) as a, ictp2p.Peer(config("b", str(a.address))) as b:
        together = Together(2)
        workers = [Worker(peer, versions=8, rows=row, together=together) for row, peer in enumerate((a, b))]
        finish(start(pool, *workers))
        same_bits(*workers, beyond=0, least=2)
        assert a.state == "TRAINING"
        assert a.leader == a.id
        assert {c["cluster"] for c in a.clusters} == {"a", "b"}
        assert a.members[0]["peer"] == a.id
        figures = a.stats()
        assert figures["false_suspicions"] == 0
        assert figures["control_connections"] >= 1
        assert figures["data_connections"] >= 1


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (ictp2p.StreamingDiLoCo, {"sync_every": 4, "fragments": 2, "overlap": 1}),
        (ictp2p.StreamingDiLoCo, {"sync_every": 4, "fragments": 2, "overlap": 2, "mix": 0.5}),
        (ictp2p.EagerDiLoCo, {"sync_every": 2}),
        (ictp2p.DiLoCo, {"outer": lambda p: ictp2p.DelayedNesterov(p, every=2)}),
    ],
)
def test_rounds_under_cover_of_training_hold_the_same_bits(
    pool: ThreadPoolExecutor, kind: type[Policy], options: dict[str, Any]
) -> None:
    with ExitStack() as peers:
        a = peers.enter_context(ictp2p.Peer(config("a")))
        others = [peers.enter_context(ictp2p.Peer(config(c, str(a.address)))) for c in ("a", "b")]
        together = Together(3)
        workers = [
            Worker(p, versions=9, rows=row, together=together, kind=kind, **options)
            for row, p in enumerate((a, *others))
        ]
        finish(start(pool, *workers))
        same_bits(*workers, least=2)
        assert a.stats()["illegal_transitions"] == 0


def test_pairs_agree_on_what_was_done_and_send_nothing_to_anybody_else(pool: ThreadPoolExecutor) -> None:
    """Five clusters, so two pairs and one alone in each round; a model of 26 elements, of which each sends twice."""
    with ExitStack() as peers:
        a = peers.enter_context(ictp2p.Peer(config("a")))
        others = [peers.enter_context(ictp2p.Peer(config(c, str(a.address)))) for c in "bcde"]
        events = list[dict[str, Any]]()
        together = Together(5, until=lambda common: bool(of_five(events)))
        for peer in (a, *others):
            peer.on_event(events.append)
        workers = [
            Worker(p, versions=6, rows=row, together=together, kind=ictp2p.NoLoCo) for row, p in enumerate((a, *others))
        ]
        finish(start(pool, *workers))
        same_bits(*workers, least=2)
        assert a.stats()["illegal_transitions"] == 0
        # A round of one pair: half of the vector there, the other half's sum back; an all-reduce of five would be more.
        assert {e["bytes_sent"] for e in of_five(events)} == {0, 2 * 26 * 4}


def test_holders_of_a_module_hold_the_same_bits_and_nobody_else_gets_them(pool: ThreadPoolExecutor) -> None:
    """Paths of one large and one small module each: `left` is held twice, `right` once, and `shared` by all three."""
    sizes = {"left": 70_000, "right": 90_000, "shared": 10}
    paths = {"a": ("left", "shared"), "b": ("left", "shared"), "c": ("right", "shared")}
    held: dict[str, dict[int, dict[str, torch.Tensor]]] = {name: {} for name in paths}

    def run(peer: ictp2p.Peer, together: threading.Barrier) -> None:
        model = torch.nn.ParameterDict({m: torch.nn.Parameter(torch.zeros(sizes[m])) for m in paths[peer.cluster]})
        inner = torch.optim.SGD(model.parameters(), lr=0.1)
        random = torch.Generator().manual_seed(ord(peer.cluster))
        together.wait(20)
        with ictp2p.DiPaCo(peer, model, inner, sync_every=2, modules=paths[peer.cluster]) as policy:
            for _ in peer.steps(iter(int, 1)):
                for parameter in model.parameters():
                    parameter.grad = torch.randn(parameter.shape, generator=random)
                inner.step()
                held[peer.cluster][policy.version] = policy.global_parameters()
                if all(max(versions, default=0) >= 8 for versions in held.values()):
                    return

    with ExitStack() as peers:
        a = peers.enter_context(ictp2p.Peer(config("a")))
        others = [peers.enter_context(ictp2p.Peer(config(c, str(a.address)))) for c in "bc"]
        events = list[dict[str, Any]]()
        others[1].on_event(events.append)
        together = threading.Barrier(3)
        finish([pool.submit(run, peer, together) for peer in (a, *others)])
        for module, (one, other) in {"left": ("a", "b"), "shared": ("a", "c")}.items():
            common = {v for v in held[one].keys() & held[other].keys() if v > 4}
            assert common
            assert all(torch.equal(held[one][v][module], held[other][v][module]) for v in common)
            assert held[one][max(common)][module].any()
        sent = [e["bytes_sent"] for e in events if e["kind"] == "round_committed" and len(e["participants"]) == 3]
        assert sent
        assert max(sent) < 4 * 10 * 20, "c moves what it shares, and nothing of its own or of the others' modules"
        assert a.stats()["illegal_transitions"] == 0


def test_two_workers_of_a_cluster_step_together(pool: ThreadPoolExecutor) -> None:
    with ictp2p.Peer(config("a")) as one, ictp2p.Peer(config("a", str(one.address))) as two:
        together = Together(2)
        workers = [Worker(p, versions=5, rows=row, together=together) for row, p in enumerate((one, two))]
        finish(start(pool, *workers))
        same_bits(*workers)
        between = sorted(v for v in workers[0].digests.keys() & workers[1].digests.keys() if v > 1)[:-1]
        assert [worker.steps[v] for worker in workers for v in between] == [2] * 2 * len(between)


def test_the_rest_of_a_cluster_goes_on_when_its_leader_ends_its_training(pool: ThreadPoolExecutor) -> None:
    """The leader's peer stays, to serve the state, say: its cluster is led by who trains."""
    with ExitStack() as peers:
        one = peers.enter_context(ictp2p.Peer(config("a")))
        others = [peers.enter_context(ictp2p.Peer(config(c, str(one.address)))) for c in ("a", "b")]
        first = Worker(one, versions=3)
        ended = start(pool, first)[0]
        together = Together(
            2, at_once=False, until=lambda common: ended.done() and min(sorted(common)[-2:]) > max(first.digests) + 1
        )
        rest = [Worker(p, versions=3, rows=row, together=together) for row, p in enumerate(others)]
        finish([ended, *start(pool, *rest)])
        assert one.leader == others[0].id
        same_bits(*rest, beyond=0)


def test_rounds_do_not_wait_for_a_cluster_that_has_ended_its_training(pool: ThreadPoolExecutor) -> None:
    """Twelve of them would take two minutes of waiting for the straggler."""
    with ictp2p.Peer(config("a")) as a, ictp2p.Peer(config("b", str(a.address))) as b:
        workers = [Worker(p, versions=versions, together=Together(1)) for p, versions in ((a, 3), (b, 15))]
        finish(start(pool, *workers))
        assert max(workers[1].digests) >= 15


def test_a_cluster_that_joins_later_starts_from_the_agreed_state(pool: ThreadPoolExecutor) -> None:
    with ictp2p.Peer(config("a")) as a:
        together = Together(2, at_once=False)
        first = Worker(a, versions=12, rows=1, together=together)
        running = start(pool, first)
        assert first.ready.wait(20)
        with ictp2p.Peer(config("b", str(a.address))) as b:
            late = Worker(b, versions=12, rows=2, together=together)
            finish([*running, *start(pool, late)])
        same_bits(first, late, least=1)


@pytest.mark.parametrize(
    ("other", "named"),
    [({"sync_every": 3}, "sync_every"), ({"width": 6}, r"tensor .*\[6"), ({"codec": "int8"}, "codec")],
)
def test_a_model_or_policy_that_differs_is_refused_by_name(
    pool: ThreadPoolExecutor, other: dict[str, Any], named: str
) -> None:
    with ictp2p.Peer(config("a")) as a, ictp2p.Peer(config("b", str(a.address))) as b:
        first = Worker(a, versions=2, rows=1)
        running = start(pool, first)
        assert first.ready.wait(20)
        (odd,) = start(pool, Worker(b, versions=2, rows=2, **other))
        with pytest.raises(MeshMismatch, match=named):
            odd.result(20)
        finish(running)
