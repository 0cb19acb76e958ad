"""What is chosen about a process group is checked where it is chosen."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st

from ictp2p.errors import ConfigError
from ictp2p.torch_backend.options import Options, server_of


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"stall": math.nan}, "stall: nan is not valid: it must be at least 0.1 s"),
        ({"stall": math.inf}, "stall: inf is not valid"),
        ({"stall": 0}, r"stall: 0\.0 is not valid"),
        ({"stall": -1.0}, r"stall: -1\.0 is not valid"),
        ({"stall": 1e-9}, "stall: 1e-09 is not valid"),
        ({"stall": "x"}, "stall: 'x' is not valid: it must be of type float"),
        ({"stall": True}, "stall: True is not valid"),
        ({"stall": None}, "stall: None is not valid"),
        ({"sealed": "no"}, "sealed: 'no' is not valid: it must be of type bool"),
        ({"sealed": 0}, "sealed: 0 is not valid"),
        ({"host": "no such host"}, "host: 'no such host' is not valid: it must be a numeric address"),
        ({"host": "256.1.1.1"}, r"host: '256\.1\.1\.1' is not valid"),
        ({"host": ""}, "host: '' is not valid"),
        ({"host": "0.0.0.0"}, r"host: '0\.0\.0\.0' is not valid: others cannot dial it"),
        ({"host": "::"}, "host: '::' is not valid: others cannot dial it"),
        ({"host": 7}, "host: 7 is not valid"),
        ({"token": b"bytes of a secret"}, "token is not valid: it must be text, in UTF-8"),
        ({"token": ""}, "token is not valid"),
    ],
)
def test_a_value_that_cannot_be_is_named(values: dict[str, Any], words: str) -> None:
    """Regression: it was a TypeError, or a healthy rank that was called lost."""
    with pytest.raises(ConfigError, match=words):
        Options(**values)


@given(st.one_of(st.floats(), st.integers(-5, 5)))
def test_any_silence_that_is_taken_is_one_that_a_rank_in_good_health_survives(stall: float) -> None:
    try:
        assert 0.1 <= Options(stall=stall).stall < math.inf
    except ConfigError:
        assert not 0.1 <= stall < math.inf


@pytest.mark.parametrize(
    ("text", "said"), [("0", False), ("false", False), ("No", False), ("1", True), ("YES", True), ("", True)]
)
def test_the_environment_says_a_truth_as_it_does_for_a_peer(text: str, said: bool) -> None:
    """Regression: whatever was not "0" was a yes."""
    environment = {"ICTP2P_HOST": "127.0.0.1", "ICTP2P_SEALED": text, "ICTP2P_SHARE_MEMORY": text}
    found = Options.of(None, environment)
    assert (found.sealed, found.share_memory) == (said, said)
    found = Options.of(Options(sealed=False, share_memory=False), environment)
    assert (found.sealed, found.share_memory) == (False, False)


def test_a_rank_listens_where_it_reaches_the_server_at_which_the_ranks_meet() -> None:
    """Regression: whoever came by `init_method="tcp://..."` listened at the default route, or at 127.0.0.1 without."""
    store: dist.Store = dist.TCPStore("127.0.0.1", 0, 1, is_master=True)
    for _ in range(2):
        store = dist.PrefixStore("group", store)
        assert server_of(store) == "127.0.0.1"
        assert Options.of(None, {"MASTER_ADDR": "192.0.2.1"}, store).host == "127.0.0.1"
        assert Options.of(Options(host="192.0.2.8"), {}, store).host == "192.0.2.8"
    assert server_of(dist.HashStore()) is None
    assert server_of(None) is None
    assert Options.of(None, {"MASTER_ADDR": "localhost"}, dist.HashStore()).host in ("127.0.0.1", "::1")


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"ICTP2P_HOST": "127.0.0.1", "ICTP2P_SEALED": "perhaps"}, "ICTP2P_SEALED: 'perhaps' is not valid: use one of"),
        ({"ICTP2P_HOST": "127.0.0.1", "ICTP2P_SHARE_MEMORY": "2"}, "ICTP2P_SHARE_MEMORY: '2' is not valid"),
        ({"ICTP2P_HOST": "elsewhere"}, "^ICTP2P_HOST: 'elsewhere' is not valid: it must be a numeric address"),
        ({"ICTP2P_HOST": "::"}, "^ICTP2P_HOST: '::' is not valid: others cannot dial it"),
        ({"ICTP2P_HOST": "127.0.0.1", "ICTP2P_TOKEN": "a\udc80"}, "^ICTP2P_TOKEN is not valid: it must be text"),
    ],
)
def test_the_environment_is_checked_too(environment: dict[str, str], words: str) -> None:
    """Regression: a host was called by its option, which nobody had given."""
    with pytest.raises(ConfigError, match=words):
        Options.of(None, environment)


def test_the_token_is_in_no_repr() -> None:
    assert "a secret" not in repr(Options(token="a secret of sixteen letters"))
