import pytest
from hypothesis import given
from hypothesis import strategies as st

from ictp2p.edge.preamble import PREAMBLE_SIZE, Kind, Preamble, Verdict, check, is_preamble, judge
from ictp2p.errors import HandshakeFailed, RemoteProtocolError, TurnedAway, VersionMismatch
from ictp2p.wire import WIRE_VERSION

MINE = Preamble(b"mesh-one")
OTHER = b"mesh-two"
NEXT = WIRE_VERSION + 1
bytes_u8 = st.integers(0, 255)
preambles = st.builds(
    Preamble,
    fingerprint=st.binary(min_size=8, max_size=8),
    kind=bytes_u8,
    verdict=bytes_u8,
    oldest=bytes_u8,
    newest=bytes_u8,
)


@given(preambles, st.binary(min_size=16, max_size=16))
def test_what_is_written_is_read_back_even_by_a_release_that_does_not_know_the_numbers(preamble: Preamble, more: bytes):
    data = preamble.encode()
    assert len(data) == PREAMBLE_SIZE == 32
    assert Preamble.decode(data) == preamble
    assert Preamble.decode(data[:16] + more) == preamble


@given(preambles)
def test_every_beginning_of_a_preamble_may_still_become_one(preamble: Preamble):
    data = preamble.encode()
    assert all(is_preamble(data[:length]) for length in range(len(data) + 1))


@given(st.binary(max_size=64).filter(lambda data: len(data) != 32 or not data.startswith(b"ICTP")))
def test_anything_else_is_the_other_sides_error(data: bytes):
    with pytest.raises(RemoteProtocolError):
        Preamble.decode(data)


@pytest.mark.parametrize("opening", [b"GET / HTTP/1.1\r\n", b"\x16\x03\x01", b"SSH-2.0-", b"ICTX"])
def test_strangers_are_known_by_their_first_bytes(opening: bytes):
    assert not is_preamble(opening)


@given(preambles)
def test_the_verdict_and_the_errors_of_both_sides_agree(theirs: Preamble):
    verdict = judge(MINE, theirs)
    overlap = max(MINE.oldest, theirs.oldest) <= min(MINE.newest, theirs.newest)
    assert (verdict is not Verdict.OTHER_VERSION) == overlap
    answer = Preamble(MINE.fingerprint, theirs.kind, verdict=verdict)
    outcomes = [_outcome(MINE, theirs, verdict), _outcome(theirs, answer, answer.verdict)]
    assert outcomes[0] is outcomes[1]
    assert (outcomes[0] is None) == (verdict is Verdict.WELCOME)


@pytest.mark.parametrize(
    ("theirs", "verdict", "error", "words"),
    [
        (Preamble(b"mesh-one"), Verdict.WELCOME, None, ""),
        (Preamble(b"mesh-one", Kind.BULK), Verdict.WELCOME, None, ""),
        (
            Preamble(b"mesh-one", oldest=NEXT, newest=NEXT + 2),
            Verdict.OTHER_VERSION,
            VersionMismatch,
            f"versions {NEXT} to {NEXT + 2}",
        ),
        (Preamble(b"mesh-one", oldest=3, newest=1), Verdict.OTHER_VERSION, VersionMismatch, "versions 3 to 1"),
        (
            Preamble(OTHER, oldest=NEXT, newest=NEXT + 2),
            Verdict.OTHER_VERSION,
            VersionMismatch,
            f"versions {NEXT} to {NEXT + 2}",
        ),
        (Preamble(OTHER), Verdict.OTHER_MESH, TurnedAway, OTHER.hex()),
        (Preamble(b"mesh-one", 77), Verdict.UNKNOWN_KIND, HandshakeFailed, "kind 77"),
    ],
)
def test_each_mismatch_is_named(theirs: Preamble, verdict: Verdict, error: type[Exception] | None, words: str):
    assert judge(MINE, theirs) is verdict
    if error is None:
        check(MINE, theirs, verdict)
    else:
        with pytest.raises(error, match=words):
            check(MINE, theirs, verdict)


def test_an_acceptor_that_welcomes_another_mesh_is_not_believed():
    with pytest.raises(TurnedAway, match="tokens differ"):
        check(MINE, Preamble(OTHER, verdict=Verdict.WELCOME), Verdict.WELCOME)


def test_a_newer_peer_that_still_speaks_our_version_is_welcome():
    assert judge(MINE, Preamble(b"mesh-one", oldest=1, newest=200)) is Verdict.WELCOME


def test_busy_and_verdicts_of_later_releases_are_refusals():
    for verdict in (Verdict.BUSY, 99):
        with pytest.raises(HandshakeFailed):
            check(MINE, Preamble(b"mesh-one", verdict=verdict), verdict)


def _outcome(mine: Preamble, theirs: Preamble, verdict: int) -> type[Exception] | None:
    try:
        check(mine, theirs, verdict)
    except (HandshakeFailed, VersionMismatch) as error:
        return type(error)
    return None
