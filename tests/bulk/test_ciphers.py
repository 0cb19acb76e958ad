"""Which cipher two ends take, and that they take the same one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.ciphers.aead import AESOCB3
from hypothesis import given
from hypothesis import strategies as st

from ictp2p.bulk import BulkProfile, ciphers, handshake, outbound
from ictp2p.bulk.ciphers import MOST, UNKNOWN, Cipher, cheapest, measured
from ictp2p.bulk.seal import Seal
from tests.bulk.conftest import Mesh, run_turns

costs = st.tuples(st.integers(0, MOST), st.integers(0, MOST))


@given(costs, costs)
def test_two_ends_take_one_cipher_that_both_have_and_that_costs_them_least(
    one: ciphers.Costs, other: ciphers.Costs
) -> None:
    chosen = cheapest(one, other)
    assert chosen is cheapest(other, one)
    offered = [cipher for cipher in Cipher if one[cipher] and other[cipher]]
    assert chosen in offered or (chosen is Cipher.GCM and not offered)
    assert all(one[chosen] + other[chosen] <= one[cipher] + other[cipher] for cipher in offered)


@pytest.fixture
def afresh() -> Iterator[None]:
    measured.cache_clear()
    yield
    measured.cache_clear()


def test_what_each_cipher_costs_is_measured_once(afresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = {Cipher.GCM: iter([3e-5, 2e-5, 4e-5, 3e-5, 9.0]), Cipher.OCB: iter([8e-6, 1e-5, 7e-6, 9e-6, 9.0])}
    monkeypatch.setattr(ciphers, "_seconds", lambda cipher: next(seconds[cipher]))
    assert measured() == (round(2e-5 * 1e12 / 65536), round(7e-6 * 1e12 / 65536))
    assert measured() is measured()


def test_what_this_machine_really_takes_is_no_nonsense(afresh: None) -> None:
    assert all(1 <= each < MOST for each in measured())  # 65 ns per byte, or less


def test_who_has_no_ocb_offers_none(afresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(key: bytes) -> AESOCB3:
        raise UnsupportedAlgorithm("OCB3 is not supported by this version of OpenSSL")

    monkeypatch.setitem(ciphers._AEADS, Cipher.OCB, missing)  # type: ignore[arg-type]
    gcm, ocb = measured()
    assert gcm > 0
    assert ocb == 0
    assert cheapest((gcm, ocb), (MOST, 1)) is Cipher.GCM


@pytest.mark.parametrize(
    ("said", "sealed", "chosen"),
    [
        ([(300, 100), (100, 200)], True, Cipher.OCB),
        ([(300, 100), (100, 400)], True, Cipher.GCM),
        ([(300, 0), (300, 100)], True, Cipher.GCM),
        ([(300, 100), (300, 100)], False, Cipher.GCM),
    ],
)
def test_a_connection_is_sealed_by_the_cipher_that_its_two_ends_take(
    said: list[ciphers.Costs], sealed: bool, chosen: Cipher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With different costs at both ends, or nothing said where only the proof of the keys is sealed."""
    used = []

    class Watched(Seal):
        def __init__(self, key: bytes, cipher: Cipher) -> None:
            super().__init__(key, cipher)
            used.append(cipher)

    turns = iter(said)
    monkeypatch.setattr(outbound, "Seal", Watched)
    monkeypatch.setattr(handshake, "measured", lambda: next(turns))

    async def story() -> None:
        world = Mesh(2, profile=BulkProfile(sealed=sealed))
        connection = await world.bulks[world.names[0]].connection(world.names[1], 5)
        assert not connection.closed
        await world.close()

    run_turns(story())
    assert used == [chosen, chosen]
    assert sealed or list(turns) == said


def test_nothing_said_means_gcm() -> None:
    assert cheapest(UNKNOWN, UNKNOWN) is cheapest(UNKNOWN, (MOST, 1)) is Cipher.GCM
