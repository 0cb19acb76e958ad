"""The group beyond what Gloo can be compared in: bits, order, many calls at once, and how ranks meet."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st

from ictp2p.errors import ConfigError, HandshakeFailed, IctError
from ictp2p.torch_backend import Options, ProcessGroup, RanksMissing
from tests.torch_backend.call_options import rooted
from tests.torch_backend.conftest import SECONDS, formed, together

LOCAL = Options(host="127.0.0.1")


@given(st.integers(2, 4), st.sampled_from([7, 4000, 90_000]), st.sampled_from([torch.float32, torch.bfloat16]))
@settings(max_examples=8, deadline=None)
def test_rounded_sums_are_the_same_bits_on_every_rank_small_or_large(
    size: int, length: int, dtype: torch.dtype
) -> None:
    def act(group: ProcessGroup, rank: int) -> torch.Tensor:
        mine = torch.randn(length, generator=torch.Generator().manual_seed(rank)).to(dtype)
        group.allreduce([mine]).wait()
        return mine

    results = together(size, act)
    assert all(torch.equal(results[0], other) for other in results[1:])
    exact = sum(torch.randn(length, generator=torch.Generator().manual_seed(n)).to(dtype).double() for n in range(size))
    assert torch.allclose(results[0].double(), exact, rtol=2e-2, atol=2e-2)


def test_many_calls_of_all_kinds_are_under_way_at_once() -> None:
    def act(group: ProcessGroup, rank: int) -> bool:
        reduced = [torch.full((n * 50,), float(rank + n)) for n in range(40)]
        copied = [torch.full((n * 70,), float(rank)) for n in range(40)]
        works = [group.allreduce([tensor]) for tensor in reduced]
        works += [group.broadcast([tensor], rooted("BroadcastOptions", n % 3)) for n, tensor in enumerate(copied)]
        works.append(group.barrier())
        for work in reversed(works):
            work.wait()
        return all((t == 3 + 3 * n).all() for n, t in enumerate(reduced)) and all(
            (t == n % 3).all() for n, t in enumerate(copied)
        )

    assert together(3, act) == [True] * 3


def test_threads_of_a_rank_may_use_groups_of_their_own() -> None:
    def act(group: ProcessGroup, rank: int) -> list[float]:
        total = torch.full((30_000,), float(rank))
        for _ in range(10):
            group.allreduce([total], dist.ReduceOp.AVG).wait()
        return [float(total[0]), float(total[-1])]

    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda _: together(2, act), range(2)))
    assert found == [[[0.5, 0.5]] * 2] * 2


def test_a_rank_may_be_late_for_more_collectives_than_a_connection_remembers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ictp2p.torch_backend.abreast.MOST", 3)
    monkeypatch.setattr("ictp2p.bulk.desk._REMEMBERED", 8)

    def act(group: ProcessGroup, rank: int) -> list[float]:
        sums = [torch.full((20_000,), float(n + rank)) for n in range(40)]
        if rank == 0:
            works = [group.allreduce([part]) for part in sums]
            group.send([torch.tensor([0])], 1, 99).wait()  # all that may begin have
        else:
            group.recv([torch.tensor([0])], 0, 99).wait()
            works = [group.allreduce([part]) for part in sums]
        for work in works:
            work.wait()
        return [float(part.sum()) / len(part) for part in sums]

    expected = [2.0 * n + 1 for n in range(40)]
    assert together(2, act) == [expected, expected]


TOKENS = ["a secret of sixteen letters", "another secret of that length"]


def test_a_token_is_asked_of_every_rank() -> None:
    same = formed(2, options=lambda rank: Options(host="127.0.0.1", token=TOKENS[0]))
    assert same == ["formed"] * 2
    other = formed(2, options=lambda rank: Options(host="127.0.0.1", token=TOKENS[rank]))
    assert all(isinstance(error, HandshakeFailed) for error in other)
    missing = formed(2, options=lambda rank: Options(host="127.0.0.1", token=TOKENS[0] if rank else None))
    assert all(isinstance(error, IctError) for error in missing)


def test_ranks_that_differ_on_sealing_are_told() -> None:
    found = formed(2, options=lambda rank: Options(host="127.0.0.1", sealed=bool(rank)))
    assert all(isinstance(error, HandshakeFailed) and "seal" in str(error) for error in found)
    assert formed(2, options=lambda rank: Options(host="127.0.0.1", sealed=False)) == ["formed"] * 2


def test_ranks_that_do_not_meet_are_named() -> None:
    with pytest.raises(RanksMissing, match=r"ranks \[1, 2\] of 3") as caught:
        ProcessGroup(dist.HashStore(), 0, 3, timedelta(seconds=0.2), LOCAL)
    assert caught.value.ranks == (1, 2)


def test_a_group_may_be_formed_again_on_a_store_that_has_seen_it() -> None:
    """The store of torchrun outlives groups. An earlier group's card is none of a rank that has yet to come."""
    store, times = dist.HashStore(), 4

    def live(rank: int) -> list[float]:
        sums = []
        for number in range(times):
            group = ProcessGroup(store, rank, 2, timedelta(seconds=SECONDS), LOCAL)
            mine = torch.tensor([float(rank + number)])
            group.allreduce([mine]).wait()
            sums.append(mine.item())
            group.shutdown()
        return sums

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(live, range(2))) == [[2.0 * number + 1 for number in range(times)]] * 2


def test_options_come_from_the_caller_first_and_then_from_the_environment() -> None:
    environment = {"ICTP2P_HOST": "192.0.2.7", "ICTP2P_SEALED": "0", "ICTP2P_TOKEN": "t" * 16}
    assert Options.of(None, environment) == Options("192.0.2.7", False, 30.0, "t" * 16)
    assert Options.of(Options(host="192.0.2.8", stall=3), environment).host == "192.0.2.8"
    assert Options.of(None, {"MASTER_ADDR": "localhost"}).host in ("127.0.0.1", "::1")
    with pytest.raises(ConfigError, match="not 5"):
        Options.of(5)
