"""What a peer keeps in its data folder, and whose that is: real files under whole peers."""

from __future__ import annotations

import asyncio
import re
import shutil
import time
from pathlib import Path

import pytest

from ictp2p.async_peer import AsyncPeer
from ictp2p.disk import MemoryDisk
from ictp2p.errors import (
    ConfigError,
    HandshakeFailed,
    PeerFailed,
    StateError,
    TurnedAway,
)
from tests.meshed import config, knows, mesh, reduction, until


async def test_one_data_folder_is_for_one_peer(tmp_path: Path) -> None:
    first = AsyncPeer(config("a", data_dir=str(tmp_path)))
    with pytest.raises(ConfigError, match=str(tmp_path)):
        AsyncPeer(config("a", data_dir=str(tmp_path)))
    await first.close()


@pytest.mark.parametrize("damaged", ["identity", "cluster"])
async def test_a_data_folder_that_cannot_be_read_is_let_go_of(tmp_path: Path, damaged: str) -> None:
    await AsyncPeer(config("a", data_dir=str(tmp_path))).close()
    path = tmp_path / f"{damaged}.ict"
    good = path.read_bytes()
    path.write_bytes(good[:-1])
    with pytest.raises(StateError, match=f"{damaged}.ict is corrupt"):
        AsyncPeer(config("a", data_dir=str(tmp_path)))
    path.write_bytes(good)
    await AsyncPeer(config("a", data_dir=str(tmp_path))).close()


async def test_a_damaged_address_book_costs_no_peer_its_identity(tmp_path: Path) -> None:
    """Regression: it was refused as if it held promises, and the worker came back as another peer, without its vote."""
    book = tmp_path / "addresses.ict"
    async with mesh("a") as (founder,):
        peer = AsyncPeer(config("b", founder, data_dir=str(tmp_path)))
        await peer.start()
        await until(book.exists)
        await peer.close()
        good = book.read_bytes()
        book.write_bytes(good[:-1])
        again = AsyncPeer(config("b", founder, data_dir=str(tmp_path)))
        try:
            await again.start()
            assert again.id == peer.id
            assert any("addresses.ict in data_dir" in told.fields["text"] for told in again.telemetry.events("warning"))
            await until(lambda: book.read_bytes() == good)
        finally:
            await again.close()


async def test_a_copy_of_a_data_folder_is_told_that_its_identity_is_taken(tmp_path: Path) -> None:
    original, copy = tmp_path / "original", tmp_path / "copy"
    founder = AsyncPeer(config("a", data_dir=str(original)))
    try:
        await founder.start()
        shutil.copytree(original, copy)
        twin = AsyncPeer(config("a", founder, data_dir=str(copy)))
        with pytest.raises(HandshakeFailed, match=f"{founder.address} is another process with the identity"):
            await twin.start()
    finally:
        await founder.close()


async def test_a_disk_that_is_slow_again_and_again_is_warned_of_once() -> None:
    """Regression: nothing said why a peer was taken for dead, or a quorum for lost."""
    kept: list[str] = []

    class Slow(MemoryDisk):
        def save(self, key: str, value: bytes) -> None:
            kept.append(key)
            super().save(key, value)

    peer = AsyncPeer(config("a"), clock=lambda: time.monotonic() + 2.0 * len(kept), disk=Slow())
    try:
        await peer.start()
        assert {"acceptor", "term"} <= set(kept)
        (warning,) = peer.telemetry.events("warning")
        assert re.match(r"the disk took 2\.\d s to keep a few bytes: .* answered nobody", warning.fields["text"])
    finally:
        await peer.close()


async def test_a_data_folder_stays_in_its_cluster(tmp_path: Path) -> None:
    first = AsyncPeer(config("a", data_dir=str(tmp_path)))
    await first.close()
    for _ in range(2):
        with pytest.raises(StateError, match=f"{tmp_path}' is that of a peer of cluster 'a', not 'b'"):
            AsyncPeer(config("b", data_dir=str(tmp_path)))
    again = AsyncPeer(config("a", data_dir=str(tmp_path)))
    assert again.id == first.id
    await again.close()


async def test_a_data_folder_stays_in_its_mesh_until_somebody_says_otherwise(tmp_path: Path) -> None:
    """Regression: a new training under a new token went on with the old one's decisions, and waited for its state."""
    founder = AsyncPeer(config("a", data_dir=str(tmp_path)))
    await founder.start()
    lineage = founder.lineage
    await founder.close()
    other = AsyncPeer(config("a", data_dir=str(tmp_path), token="another token for tests only"))
    with pytest.raises(
        StateError, match=f"{tmp_path}' holds the decisions of a mesh with another token .* delete mesh.ict"
    ):
        await other.start()
    (tmp_path / "mesh.ict").unlink()
    for token in ("another token for tests only",) * 2:
        again = AsyncPeer(config("a", data_dir=str(tmp_path), token=token))
        await again.start()
        assert (again.id, again.lineage) == (founder.id, lineage)
        await again.close()


async def test_a_data_folder_without_decisions_goes_wherever_its_peer_is_let_in(tmp_path: Path) -> None:
    async with mesh("a") as (founder,):
        folder = str(tmp_path)
        mistyped = AsyncPeer(config("b", founder, data_dir=folder, token="not the token for these tests"))
        with pytest.raises(TurnedAway):
            await mistyped.start()
        right = AsyncPeer(config("b", founder, data_dir=folder))
        await right.start()
        assert right.lineage == founder.lineage
        await right.close()


async def test_who_goes_on_with_a_copy_of_a_data_folder_ends_the_original(tmp_path: Path) -> None:
    """As an older fencing token is void: the copy began later, with promises that the original may not know."""
    original, copy = tmp_path / "original", tmp_path / "copy"
    async with mesh("b") as (founder,):
        first = AsyncPeer(config("a", founder, data_dir=str(original)))
        twin = None
        try:
            await first.start()
            shutil.copytree(original, copy)
            twin = AsyncPeer(config("a", founder, data_dir=str(copy)))
            await twin.start()
            await until(lambda: first.failure is not None)
            with pytest.raises(PeerFailed, match=f"another process at {twin.address} has"):
                await first.reduce(reduction(1.0))
            assert twin.failure is None
        finally:
            await asyncio.gather(*(peer.close() for peer in (first, twin) if peer is not None))


async def test_a_peer_that_restarts_with_its_disk_is_the_same_peer_in_the_same_mesh(tmp_path: Path) -> None:
    async with mesh("a", "b") as peers:
        third = AsyncPeer(config("c", peers[0], data_dir=str(tmp_path)))
        await third.start()
        await until(lambda: knows(peers[0], {"c"}))
        who = third.id
        await third.close()
        again = AsyncPeer(config("c", peers[1], data_dir=str(tmp_path)))
        try:
            await again.start()
            assert again.id == who
            await until(lambda: peers[0].core.directory.leader_of(again.cluster) == who)
            await until(lambda: "c" in peers[0].core.m.mesh.alive())
        finally:
            await again.close()


async def test_a_founder_that_restarts_finds_back_to_those_whom_it_knew(tmp_path: Path) -> None:
    founder = AsyncPeer(config("a", data_dir=str(tmp_path)))
    await founder.start()
    other = AsyncPeer(config("b", founder))
    again: AsyncPeer | None = None
    try:
        await other.start()
        await until(lambda: knows(founder, {"b"}))
        who = founder.id
        await founder.close()
        await until(lambda: other.core.m.mesh.members["a"].status.name == "DEAD")
        again = AsyncPeer(config("a", data_dir=str(tmp_path)))  # another port, and nobody is told of it
        await again.start()
        assert again.id == who
        await until(lambda: again is not None and knows(again, {"b"}) and knows(other, {"a"}))
    finally:
        for peer in (other, again):
            if peer is not None:
                await peer.close()
