"""What is done to the elements of tensors in pieces is what would be done to the whole of them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from unittest.mock import patch

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from ictp2p.concurrency import elementwise as module
from ictp2p.concurrency import torch_threads
from ictp2p.concurrency.elementwise import elementwise

SHAPES = st.lists(st.integers(0, 9), max_size=4)


@pytest.fixture(autouse=True, scope="module")
def many_cores() -> Iterator[None]:
    """Four cores, and threads that are started for almost nothing."""
    with patch.object(torch_threads, "_cores", lambda: 4), patch.object(module, "_THREAD", 64):
        yield


def added(one: Tensor, other: Tensor) -> None:
    one.add_(other.to(one.dtype))


@given(
    st.lists(st.tuples(SHAPES, st.booleans(), st.booleans()), max_size=5),
    st.sampled_from([torch.float32, torch.float64, torch.bfloat16, torch.uint8]),
    st.sampled_from([1, 8, 40, 1 << 20]),
)
def test_pieces_are_the_whole(tensors: list[tuple[list[int], bool, bool]], dtype: torch.dtype, piece: int) -> None:
    """Of whatever shape they are and however they lie in memory, those that need gradients too."""
    jobs, expected = list[tuple[Tensor, Tensor]](), list[Tensor]()
    for shape, turned, trained in tensors:
        one = torch.arange(torch.Size(shape).numel()).remainder(200).to(torch.float32).view(shape)
        other = torch.full(shape, 3.0).to(dtype)
        one = one.transpose(0, -1).contiguous().transpose(0, -1) if turned and shape else one
        jobs.append((one.requires_grad_(trained), other))
        expected.append(one.detach() + 3.0)
    with patch.object(module, "_PIECE", piece):
        elementwise((added, job) for job in jobs)
    assert all(torch.equal(one.detach(), wanted) for (one, _), wanted in zip(jobs, expected, strict=True))


@pytest.mark.parametrize("shape", [(1000,), (50, 20)])
def test_large_tensors_are_cut_however_they_lie(shape: tuple[int, ...]) -> None:
    cut = list[int]()
    with patch.object(module, "_PIECE", 400):
        elementwise([(lambda tensor: cut.append(tensor.numel()), [torch.zeros(shape).t()])])
    assert sum(cut) == 1000
    assert max(cut) <= 100


def test_small_ones_are_done_here() -> None:
    who = list[int]()
    elementwise([(lambda tensor: who.append(threading.get_ident()), [torch.zeros(3)])] * 5)
    assert who == [threading.get_ident()] * 5


def test_what_lies_on_a_device_is_done_whole_and_here() -> None:
    done = list[tuple[int, int]]()

    def act(one: Tensor, other: Tensor) -> None:
        done.append((one.numel(), threading.get_ident()))

    elementwise([(act, [torch.zeros(1 << 20), torch.zeros(1 << 20, device="meta")])])
    assert done == [(1 << 20, threading.get_ident())]
