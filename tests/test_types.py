"""Addresses and cluster names: what a user may type, and what the refusal says."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ictp2p.errors import ConfigError
from ictp2p.types import Address, cluster_id


@given(host=st.sampled_from(["127.0.0.1", "example.org", "::1", "fe80::2"]), port=st.integers(0, 65535))
def test_an_address_reads_back_from_its_own_text(host: str, port: int) -> None:
    address = Address(host, port)
    assert Address.parse(str(address)) == address


@pytest.mark.parametrize(
    "text",
    [
        "",
        "host",
        ":7000",
        "host:",
        "host:70000",
        "host:-1",
        "host:7e3",
        "::1:7000",
        "a b:1",
        "host:²",
        f"host:{'9' * 5000}",
    ],
)
def test_an_impossible_address_is_refused_by_name(text: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        Address.parse(text)
    assert repr(text) in str(refusal.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("::1:7000", "write an IPv6 host in brackets"),
        ("[::1]", "its port is missing"),
        ("127.0.0.1:7001,127.0.0.1:7002", "give each address by itself"),
        ("http://train.example:7450", "expected host:port, as in 192.0.2.7"),
    ],
)
def test_a_refused_address_says_what_to_write(text: str, words: str) -> None:
    """Regression: whoever pasted a URL was told to put its scheme in brackets."""
    with pytest.raises(ConfigError, match=words):
        Address.parse(text)


@given(st.text(string.ascii_lowercase + string.digits, min_size=1, max_size=63))
def test_plain_names_are_cluster_names(name: str) -> None:
    assert cluster_id(name) == name


@pytest.mark.parametrize("name", ["", "-a", "Zurich", "a b", "a/b", "é", "x" * 64, "a\n"])
def test_an_impossible_cluster_name_is_refused_by_name(name: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        cluster_id(name)
    assert repr(name) in str(refusal.value)
