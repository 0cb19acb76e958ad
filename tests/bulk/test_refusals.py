"""A reason has 32 bytes: they are spent on words, not on ids that both ends know."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ictp2p.bulk import BulkProfile
from ictp2p.bulk.frames import Hello, Purpose, read_hello
from ictp2p.bulk.refusals import refusal
from ictp2p.errors import Unreachable
from ictp2p.types import PeerId

IDS = st.binary(min_size=16, max_size=16).map(lambda each: PeerId(each.hex()))


@given(IDS, IDS)
@pytest.mark.parametrize(
    ("reason", "told"),
    [
        ("{0} is no rank of this group", "{0:.6} is no rank of this group"),
        ("no card of {0} is known, and so no key to agree on", "no card of {0:.6} is known, and "),
        ("{1} has no address that could be dialed", "{1:.6} has no address that could"),
        ("relay is full", "relay is full"),
    ],
)
def test_what_is_told_of_a_reason_is_its_words(reason: str, told: str, source: PeerId, target: PeerId) -> None:
    hello = Hello(Purpose.RELAY, source, target, bytes(32), hops=1)
    answer = read_hello(refusal(hello, reason.format(source, target)).pack())
    assert (answer.purpose, answer.source, answer.target) == (Purpose.REFUSAL, target, source)
    assert answer.nonce.rstrip().decode() == told.format(source, target).rstrip()


async def test_who_is_refused_hears_why(mesh: Callable[..., Any]) -> None:
    world = mesh(2, profile=replace(BulkProfile(), handshake=0.4))
    a, b = world.names
    world.names.remove(a)
    with pytest.raises(Unreachable, match=f"refused: {a[:6]} is not known"):
        await world.bulks[a].connection(b, 1)
