"""What passes between a training program and its peer's process comes out as it went in, however it is cut."""

from __future__ import annotations

import contextlib
from typing import Any, get_args, get_type_hints

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ictp2p import errors
from ictp2p.config import Config, Timeouts
from ictp2p.errors import IctError, LocalProtocolError
from ictp2p.handle import messages, to_peer, to_training
from ictp2p.handle.failures import packed, unpacked
from ictp2p.handle.framing import HEADER, MOST, Frames
from ictp2p.handle.messages import Failure, TensorRef, encode
from ictp2p.handle.to_peer import ToPeer
from ictp2p.handle.to_training import ToTraining
from ictp2p.sync.rosters.devices import Device
from ictp2p.sync.rosters.presence import Stage
from ictp2p.sync.rosters.roster import Breach, Roster
from ictp2p.sync.values import Close, Open, Participant, Restore, Spec, StateRef, Value, Voters
from ictp2p.types import ClusterId, PeerId

PEERS = st.text("0123456789abcdef", min_size=32, max_size=32).map(PeerId)
CLUSTERS = st.from_regex(r"[a-z0-9][a-z0-9._-]{0,62}", fullmatch=True).map(ClusterId)
COUNTS = st.integers(0, 2**63 - 1)
DIGESTS = st.binary(max_size=64)
TEXTS = st.text(max_size=32)
PLAIN = st.dictionaries(
    TEXTS, st.one_of(TEXTS, st.integers(-(2**40), 2**40), st.booleans(), st.lists(TEXTS)), max_size=4
)
REFS = st.builds(
    StateRef, COUNTS, DIGESTS, st.lists(PEERS, max_size=3).map(tuple), st.lists(st.tuples(CLUSTERS, COUNTS)).map(tuple)
)
PARTS = st.builds(Participant, CLUSTERS, PEERS, COUNTS, st.floats(0.1, 1e9), st.binary(max_size=8))
SPECS = st.builds(
    Spec,
    st.sampled_from(["sync", "reduce", "gather"]),
    TEXTS,
    st.just("float32"),
    COUNTS,
    st.just("avg"),
    TEXTS,
    DIGESTS,
)
_CHAIN = (st.binary(min_size=8, max_size=8), st.lists(PEERS, min_size=1, max_size=7).map(tuple), REFS, PEERS)
OPENS = st.builds(
    Open,
    *_CHAIN,
    COUNTS,
    COUNTS,
    SPECS,
    st.lists(PARTS, min_size=1).map(tuple),
    DIGESTS,
    TEXTS,
    st.floats(0, 1e6),
    TEXTS,
)
CLOSES = st.builds(
    Close, *_CHAIN, COUNTS, COUNTS, st.booleans(), DIGESTS, TEXTS, st.lists(PEERS, max_size=3).map(tuple)
)
VALUES = st.one_of(
    st.builds(Voters, *_CHAIN), OPENS, CLOSES, st.builds(Restore, *_CHAIN, COUNTS, COUNTS, COUNTS, TEXTS)
)
ROSTERS = st.builds(
    Roster,
    st.integers(1, 2**40),
    st.integers(1, 2**40),
    st.lists(PEERS, min_size=1, unique=True).map(tuple),
    st.just("[::1]:7"),
    st.integers(0, 2**62 - 1),
)
WAITS = st.builds(Timeouts, **dict.fromkeys(("connect", "stall", "form", "complete"), st.floats(0.1, 1e5)))
CONFIGS = st.builds(
    Config.local,
    cluster=CLUSTERS,
    token=st.text(min_size=16, max_size=20).filter(lambda text: text == text.strip()),
    join=st.lists(st.just("10.0.0.1:7450")).map(tuple),
    data_dir=st.none() | st.just("/somewhere"),
    bulk_rate=st.none() | st.floats(1, 1e12),
    restore_after=st.sampled_from([1.0, float("inf")]),
    local_timeouts=WAITS,
    isolation=st.sampled_from(["thread", "process"]),
)
TENSORS = st.builds(TensorRef, COUNTS, COUNTS, COUNTS, TEXTS)
DEVICES = st.builds(Device, TEXTS, TEXTS, TEXTS, TEXTS, TEXTS)
FAILURES = st.builds(Failure, TEXTS, TEXTS, TEXTS)
OF: dict[Any, st.SearchStrategy[Any]] = {
    bool: st.booleans(),
    int: COUNTS,
    float: st.floats(0, 1e6),
    str: TEXTS,
    bytes: DIGESTS,
    bytes | None: st.none() | DIGESTS,
    dict[str, Any]: PLAIN,
    dict[str, str]: st.dictionaries(TEXTS, TEXTS, max_size=3),
    tuple[int, int]: st.tuples(COUNTS, COUNTS),
    tuple[str, ...] | None: st.none() | st.lists(TEXTS, max_size=3).map(tuple),
    tuple[bytes, ...]: st.lists(DIGESTS, max_size=3).map(tuple),
    tuple[ClusterId, ...]: st.lists(CLUSTERS, max_size=3).map(tuple),
    msgspec.Raw: PLAIN.map(messages.raw),
    PeerId | None: st.none() | PEERS,
    ClusterId: CLUSTERS,
    Config: CONFIGS,
    Device: DEVICES,
    Roster: ROSTERS,
    Breach: st.builds(Breach, st.sampled_from(["broke", "unmet", "unbuilt"]), TEXTS, TEXTS),
    Stage: st.sampled_from(get_args(Stage)),
    Failure: FAILURES,
    Spec: SPECS,
    StateRef: REFS,
    StateRef | None: st.none() | REFS,
    Open: OPENS,
    Close: CLOSES,
    Value: VALUES,
    TensorRef: TENSORS,
    tuple[TensorRef, ...]: st.lists(TENSORS, max_size=3).map(tuple),
    tuple[Participant, ...]: st.lists(PARTS, max_size=3).map(tuple),
}


def made(kind: Any) -> st.SearchStrategy[Any]:
    """Messages of a kind."""
    return st.builds(kind, *[OF[hint] for hint in get_type_hints(kind).values()])


@settings(max_examples=20)
@given(st.data(), st.integers(0, 2**32 - 1))
@pytest.mark.parametrize("kind", get_args(ToPeer) + get_args(ToTraining), ids=lambda kind: kind.__name__)
def test_every_message_comes_out_as_it_went_in(kind: Any, data: st.DataObject, number: int) -> None:
    message = data.draw(made(kind))
    ((found, body),) = Frames().take(encode(number, message))
    decoded = (to_peer if kind in get_args(ToPeer) else to_training).decode(body)
    assert found == number
    assert encode(0, decoded) == encode(0, message)
    assert type(decoded) is kind
    if not hasattr(message, "value"):
        assert decoded == message


@given(st.lists(st.binary(max_size=40), max_size=6), st.lists(st.integers(1, 30), min_size=1))
def test_frames_are_put_together_from_whatever_pieces_come(bodies: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(HEADER.pack(len(body), number) + body for number, body in enumerate(bodies))
    frames, found, at = Frames(), [], 0
    for cut in [*cuts, len(stream)]:
        found += frames.take(stream[at : at + cut])
        at += cut
    assert found == list(enumerate(bodies))


def test_a_program_may_ask_more_than_two_to_the_32_questions() -> None:
    """A thousand a second come to as many in fifty days, and the next one could not be said."""
    number, _ = next(Frames().take(encode(2**32, to_peer.TakingPart())))
    assert number == 2**32


def test_lengths_are_checked_before_anything_is_kept() -> None:
    with pytest.raises(LocalProtocolError, match=f"{MOST + 1} bytes was announced"):
        list(Frames().take(HEADER.pack(MOST + 1, 0)))
    with pytest.raises(LocalProtocolError, match=r"Take of .* bytes is longer"):
        encode(0, to_training.Take(1, 0, bytes(MOST)))


@given(st.binary(max_size=60))
def test_garbage_is_an_error(body: bytes) -> None:
    for decode in (to_peer.decode, to_training.decode):
        with contextlib.suppress(LocalProtocolError):  # and no other
            decode(body)


KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, IctError)]


@given(st.sampled_from(KINDS), TEXTS)
def test_our_errors_arrive_as_what_they_were(kind: type[IctError], text: str) -> None:
    found = unpacked(packed(kind(text)))
    assert type(found) is kind
    assert str(found) == text


class Inner(errors.NoQuorum):
    """An error of one module's own."""


def test_what_only_one_module_knows_arrives_as_what_everybody_knows() -> None:
    assert type(unpacked(packed(Inner("here")))) is errors.NoQuorum


@pytest.mark.parametrize(
    ("error", "kind", "text"), [(KeyError("x"), RuntimeError, "KeyError: 'x'"), (ValueError("y"), ValueError, "y")]
)
def test_a_bug_keeps_its_stack(error: Exception, kind: type[Exception], text: str) -> None:
    def fail() -> None:
        raise error

    try:
        fail()
    except Exception as raised:
        found = unpacked(packed(raised))
    assert type(found) is kind
    assert str(found) == text
    assert "in fail" in found.__notes__[0]


def test_a_frame_is_given_once_whatever_becomes_of_it_where_it_is_taken() -> None:
    frames, heard = Frames(), list[int]()

    def take(data: bytes) -> None:
        for number, _ in frames.take(data):
            heard.append(number)
            if number == 2:
                raise ValueError(number)

    with pytest.raises(ValueError, match="2"):
        take(b"".join(HEADER.pack(1, number) + b"x" for number in (1, 2, 3)))
    take(b"")
    assert heard == [1, 2, 3]
