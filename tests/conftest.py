"""What tests of several rooms use."""

import asyncio
import gc
import os
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import uvloop
from hypothesis import settings

# How long an example takes says more about the machine than about the code. With CI set every run draws the same
# examples, and half as many, so that a red one is the change's doing; new ones are for developers, who can look into
# what they find.
CI = "CI" in os.environ
settings.register_profile("ictp2p", deadline=None, derandomize=CI, max_examples=50 if CI else 100)
settings.load_profile("ictp2p")

# Threads of torch that wait for each other by spinning take a busy machine's cores from what they wait for.
os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests with several processes come first: they take long, and wait for timers more than for a core.

    `pytest -n 2 --dist loadfile` deals out files, for their fixtures (its groups it does not find with pytest 9.2).
    """
    items.sort(key=lambda item: item.get_closest_marker("real") is None)


def pytest_collection_finish() -> None:
    """Leave out of all later collections of garbage what was loaded for the tests: some look for it after each test."""
    gc.collect()
    gc.freeze()


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Iterator[Callable[..., object]]:
    """Runs a coroutine, on either event loop; afterwards nothing may have been left open.

    Warnings are recorded rather than raised while the loop closes: uvloop warns from inside its own callbacks,
    where an exception would keep the handle from being closed, and the loop from ever ending.
    """
    runner = asyncio.Runner(loop_factory=request.param)
    yield runner.run
    with warnings.catch_warnings(record=True) as leaks:
        warnings.simplefilter("always")
        runner.close()
        gc.collect()
    assert [str(leak.message) for leak in leaks] == []


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as executor:
        yield executor
