"""The store of a process group: one at a time, whoever asks how often."""

from __future__ import annotations

import asyncio
import gc
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ictp2p.errors import AddressInUse
from ictp2p.runtime.group_store import GroupStore


class Shop:
    """Opens stores, none before `gate` is open, and knows which are."""

    def __init__(self) -> None:
        self.opened = 0
        self.open: list[int] = []
        self.gate = threading.Event()
        self.gate.set()

    def __call__(self, host: str) -> tuple[str, Ware]:
        assert self.gate.wait(10)
        if host == "elsewhere":
            raise AddressInUse(host)
        self.opened += 1
        self.open.append(self.opened)
        return f"{host}:{self.opened}", Ware(self, self.opened)


class Ware:
    """A store that may be closed once."""

    def __init__(self, shop: Shop, number: int) -> None:
        self.shop, self.number = shop, number

    def close(self) -> None:
        self.shop.open.remove(self.number)


@given(asked=st.lists(st.integers(1, 3), max_size=4))
def test_only_the_last_store_is_open_and_it_is_the_one_that_was_named(asked: list[int]) -> None:
    """Each entry is how many ask at the same time."""

    async def run() -> None:
        shop = Shop()
        store = GroupStore(shop)
        for together in asked:
            named = await asyncio.gather(*(store.renew("host") for _ in range(together)))
            assert set(named) == {f"host:{shop.opened}"}
            assert shop.open == [shop.opened]
        assert shop.opened == len(asked)
        await store.close()
        assert shop.open == []

    asyncio.run(run())


async def test_who_asks_again_while_a_store_is_opened_does_not_have_it_closed() -> None:
    shop = Shop()
    store = GroupStore(shop)
    shop.gate.clear()
    first = asyncio.create_task(store.renew("host"))
    await asyncio.sleep(0)
    again = asyncio.create_task(store.renew("host"))
    await asyncio.sleep(0)
    shop.gate.set()
    assert await first == await again == "host:1"
    assert shop.open == [1]
    await store.close()


@given(hosts=st.lists(st.sampled_from(["one", "two", "elsewhere"]), min_size=1, max_size=4))
def test_who_asks_for_another_interface_while_a_store_is_opened_gets_one_there(hosts: list[str]) -> None:
    """Regression: it got the first one's, which the members of a worker whose address changes cannot reach.

    Nor is anybody given a store that is about to be closed for a later one.
    """

    async def run() -> None:
        shop = Shop()
        store = GroupStore(shop)
        shop.gate.clear()
        asked = []
        for host in hosts:
            asked.append(asyncio.create_task(store.renew(host)))
            await asyncio.sleep(0)
        shop.gate.set()
        named = {str(each) for each in await asyncio.gather(*asked, return_exceptions=True)}
        assert named == {"elsewhere" if hosts[-1] == "elsewhere" else f"{hosts[-1]}:{shop.opened}"}
        assert shop.open == ([shop.opened] if shop.opened else [])
        await store.close()
        assert shop.open == []

    asyncio.run(run())


async def test_what_is_being_opened_as_the_peer_closes_is_closed() -> None:
    shop = Shop()
    store = GroupStore(shop)
    shop.gate.clear()
    opening = asyncio.create_task(store.renew("host"))
    await asyncio.sleep(0)
    closing = asyncio.create_task(store.close())
    opening.cancel()
    await asyncio.sleep(0)
    shop.gate.set()
    await closing
    assert shop.opened == 1
    assert shop.open == []


async def test_a_store_that_cannot_be_opened_leaves_the_last_one_open() -> None:
    shop = Shop()
    store = GroupStore(shop)
    await store.renew("host")
    with pytest.raises(AddressInUse, match="elsewhere"):
        await store.renew("elsewhere")
    assert shop.open == [1]
    assert await store.renew("host") == "host:2"
    await store.close()


async def test_a_store_is_closed_though_whoever_closes_it_is_cancelled_before_a_thread_is_free() -> None:
    shop, free = Shop(), threading.Event()
    store, loop = GroupStore(shop), asyncio.get_running_loop()
    await store.renew("host")
    threads = ThreadPoolExecutor(1)
    loop.set_default_executor(threads)
    busy = loop.run_in_executor(None, free.wait, 10)
    closing = asyncio.create_task(store.close())
    while threads._work_queue.qsize() < 1:
        await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    free.set()
    await busy
    await loop.shutdown_default_executor()
    assert shop.open == []


async def test_of_a_renewal_that_another_one_replaced_nobody_hears_that_it_failed() -> None:
    """Regression: asyncio told of an exception that nobody had retrieved, once it came by."""
    said, shop = list[str](), Shop()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: said.append(context["message"]))
    shop.gate.clear()
    store = GroupStore(shop)
    first = asyncio.create_task(store.renew("elsewhere"))
    await asyncio.sleep(0)
    second = asyncio.create_task(store.renew("here"))
    await asyncio.sleep(0)
    shop.gate.set()
    assert await first == await second == "here:1"
    await store.close()
    del first, second
    store._renewal = None
    gc.collect()
    assert said == []
