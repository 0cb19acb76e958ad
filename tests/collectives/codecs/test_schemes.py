from __future__ import annotations

import pytest

from ictp2p.collectives.codecs.prices import CHOICES, PRICES, price
from ictp2p.collectives.codecs.schemes import SCHEMES, scheme
from ictp2p.errors import ConfigError


def test_every_scheme_has_its_price_and_the_price_is_its_size() -> None:
    assert set(PRICES) == {"none", *SCHEMES}
    elements = 64 * 4096
    for name in SCHEMES:
        for participants in (1, 2, 7, 64, 500):
            made, asked = scheme(name, participants), price(name, participants)
            assert made is not None
            assert made.block == asked.block
            for kind in ("contribution", "partial", "result"):
                share = getattr(made, kind).size(elements) / (4 * elements)
                assert getattr(asked, kind) == pytest.approx(share), (name, participants, kind)


def test_none_is_no_scheme_and_others_are_refused() -> None:
    assert scheme("none", 3) is None
    with pytest.raises(ConfigError, match="codec 'zip' is not known: use none, bfloat16"):
        scheme("zip", 3)
    with pytest.raises(ConfigError, match="codec 'zip' is not known: use none, bfloat16"):
        price("zip", 3)
    assert set(CHOICES) <= set(PRICES)
