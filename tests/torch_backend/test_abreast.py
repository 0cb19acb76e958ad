"""Collectives that are under way: begun in order, few if they are large, and waited for as long as something moves."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ictp2p.torch_backend import ProcessGroup, abreast
from ictp2p.torch_backend.abreast import Abreast, Turn
from tests.bulk.conftest import run_turns
from tests.torch_backend.call_options import rooted
from tests.torch_backend.conftest import together

PATIENCE = 2.0
SIZES = [0, 1, abreast.BYTES // 5, abreast.BYTES // 2, abreast.BYTES, 3 * abreast.BYTES]


@given(st.lists(st.tuples(st.sampled_from(SIZES), st.floats(0.0, 1.5), st.booleans()), max_size=100))
def test_they_begin_in_order_and_of_large_ones_only_so_many_are_under_way(calls: list[tuple[int, float, bool]]) -> None:
    began, running = list[int](), dict[int, int]()

    async def begin(line: Abreast, number: int, nbytes: int) -> Turn:
        turn = await line.begin(str(number), nbytes, 1000.0)
        began.append(number)
        running[number] = nbytes
        assert len(running) <= abreast.MOST
        assert len(running) <= abreast.FEW or sum(running.values()) <= abreast.BYTES
        return turn

    async def carry_out(line: Abreast, number: int, nbytes: int, seconds: float, given_up: bool) -> None:
        begun = asyncio.ensure_future(begin(line, number, nbytes))
        await asyncio.wait([begun], timeout=seconds / 2 if given_up else None)
        if begun.cancel():
            await asyncio.wait([begun])
            return
        turn = await begun
        await asyncio.sleep(seconds)
        del running[number]
        line.end(turn, well=number % 2 == 0)

    async def story() -> None:
        line = Abreast()
        await asyncio.gather(*(carry_out(line, number, *call) for number, call in enumerate(calls)))
        assert began == sorted(began)
        assert {n for n, (_, _, given_up) in enumerate(calls) if not given_up} <= set(began)
        assert (line._under_way, line._bytes, list(line._waiting)) == ({}, 0, [])

    run_turns(story())


@pytest.mark.parametrize("well", [True, False])
def test_who_waits_is_patient_as_long_as_those_before_it_end_well(well: bool) -> None:
    """Regression: whatever was queued had the time of one for all, and was over as one, with most of each moved."""

    async def carry_out(line: Abreast, number: int) -> float:
        turn = await line.begin(f"no. {number}", abreast.BYTES, PATIENCE)
        await asyncio.sleep(0.9 * PATIENCE)
        line.end(turn, well=well)
        return asyncio.get_running_loop().time()

    async def story() -> None:
        loop, line = asyncio.get_running_loop(), Abreast()
        began = loop.time()
        ended = await asyncio.gather(*(carry_out(line, number) for number in range(8)), return_exceptions=True)
        turns = [time if isinstance(time, BaseException) else round((time - began) / PATIENCE, 1) for time in ended]
        if well:
            assert turns == [0.9, 0.9, 1.8, 1.8, 2.7, 2.7, 3.6, 3.6]
        else:
            assert turns[:4] == [0.9, 0.9, 1.8, 1.8]
            assert [type(error) for error in turns[4:]] == [TimeoutError] * 4
            assert {str(error) for error in turns[4:]} == {
                "no call before it has succeeded for 2 s: no. 2 is still under way"
            }
            assert loop.time() - began < 2 * PATIENCE
        assert (line._under_way, line._bytes) == ({}, 0)

    run_turns(story())


def test_ranks_take_a_collective_for_as_large_as_the_others_do() -> None:
    def act(group: ProcessGroup, rank: int) -> list[int]:
        sizes, begin = list[int](), group._calls._abreast.begin

        async def counted(name: str, nbytes: int, patience: float) -> Turn:
            sizes.append(nbytes)
            return await begin(name, nbytes, patience)

        group._calls._abreast.begin = counted  # type: ignore[method-assign]
        mine, parts = torch.ones(100), [[torch.ones(100), torch.ones(100)]] if rank == 0 else []
        root: Any = {kind: rooted(f"{kind}Options", 0) for kind in ("Gather", "Scatter", "Reduce", "Broadcast")}
        group.gather(parts, [mine], root["Gather"]).wait()
        group.scatter([mine], parts, root["Scatter"]).wait()
        group.reduce([mine], root["Reduce"]).wait()
        group.broadcast([mine], root["Broadcast"]).wait()
        group.allreduce([mine]).wait()
        group.all_gather_single(torch.ones(200), mine).wait()
        group.barrier().wait()
        return sizes

    assert together(2, act) == [[800, 800, 400, 400, 400, 1200, 0]] * 2
