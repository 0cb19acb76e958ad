from __future__ import annotations

import pytest

from benchmarks.codecs import pays_below
from ictp2p.collectives.codecs.schemes import SCHEMES

GIGABIT = 1e9 / 8


@pytest.mark.parametrize("participants", [2, 3, 4, 8, 64])
@pytest.mark.parametrize("name", SCHEMES)
def test_every_codec_pays_on_a_link_between_clusters(name: str, participants: int) -> None:
    assert pays_below(name, participants) > 5 * GIGABIT
