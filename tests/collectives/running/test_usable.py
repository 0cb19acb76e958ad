from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.distributed._functional_collectives import AsyncCollectiveTensor

from ictp2p.collectives.running.usable import awaited, unreadable, unwritable
from tests.collectives.running.formless import FORMLESS


class Plain(Tensor):
    """A subclass like any other."""


@pytest.mark.parametrize("words", FORMLESS)
def test_what_has_no_memory_of_its_own_is_told_by_kind(words: str) -> None:
    with pytest.raises(AssertionError, match=words):
        raise AssertionError(unreadable(FORMLESS[words]))


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.ones(3),
        lambda: torch.ones(0),
        lambda: torch.ones(()),
        lambda: torch.nn.Parameter(torch.ones(3)),
        lambda: torch.ones(3).as_subclass(Plain),
        lambda: torch.ones(3, 4).t()[1:],
        lambda: torch.ones(3)[3:],
        lambda: torch._neg_view(torch.ones(3)),
    ],
)
def test_what_has_is_not_refused(make: Callable[[], Tensor]) -> None:
    assert unreadable(make()) == unwritable(make()) == ""


def test_what_stands_for_a_result_under_way_is_that_result() -> None:
    result = torch.ones(3)
    standing = AsyncCollectiveTensor(result)
    standing.completed = True  # else it is waited for, by a group
    assert "is an AsyncCollectiveTensor without memory" in unreadable(standing)
    assert awaited(standing) is result
    assert awaited(result) is result


def test_elements_that_are_one_in_memory_can_be_read_and_not_written() -> None:
    tensor = torch.ones(3, 1).expand(3, 4)
    assert unreadable(tensor) == ""
    assert "is expanded" in unwritable(tensor)
    assert unwritable(torch.ones(3, 1).expand(3, 1)) == ""
