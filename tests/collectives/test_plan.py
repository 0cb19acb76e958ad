from __future__ import annotations

import re
import zlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ictp2p.collectives import plan as plans
from ictp2p.collectives.plan import Plan, Share
from ictp2p.collectives.planning.schedules import star
from ictp2p.errors import RemoteProtocolError
from tests.collectives.planning.planned import bytes_between

NAMES = ("a", "b", "c")
STAR = Share(0, 10, 1, (1, -1, 1), (1, -1, 1))
CHAIN = Share(10, 25, 0, (-1, 0, 1), (-1, 2, 0))
GOOD = Plan("test", NAMES, (STAR, CHAIN), 4, 2.0, 1.0)


def problem(plan: Plan, elements: int = 25) -> str | None:
    return plans.validate(plan.encode(), NAMES, elements)


def change(share: int, **fields: object) -> Plan:
    shares = list(GOOD.shares)
    shares[share] = msgspec.structs.replace(shares[share], **fields)
    return msgspec.structs.replace(GOOD, shares=tuple(shares))


def test_a_plan_of_one_shot_has_one_share_and_no_trees() -> None:
    good = plans.one_shot_plan(NAMES, 25, 2.0, 1.0)
    assert problem(good) is None
    assert plans.decode(good.encode()) == good
    assert [bytes_between(good, 0, n) for n in range(3)] == [0, 100, 100]
    for wrong in (
        msgspec.structs.replace(good, shares=(*good.shares, *good.shares)),
        msgspec.structs.replace(good, shares=()),
        msgspec.structs.replace(good, shares=(msgspec.structs.replace(good.shares[0], root=1),)),
        msgspec.structs.replace(good, shares=(msgspec.structs.replace(good.shares[0], reduce_parents=(-1, 0, 0)),)),
        msgspec.structs.replace(good, shares=(msgspec.structs.replace(good.shares[0], stop=26),)),
        msgspec.structs.replace(good, codec="int8"),
    ):
        assert "one_shot has one share of all 25 elements" in (problem(wrong) or "")
    for elements in (0, plans.MAX_ONE_SHOT + 1):
        assert "not within 1..65536" in (problem(plans.one_shot_plan(NAMES, elements), elements) or "")


def test_no_group_goes_in_one_shot() -> None:
    whole = Plan(plans.GROUPS, NAMES, (), 1, 2.0, 0.0, groups=(plans.one_shot_plan(NAMES, 25, 2.0),))
    assert problem(whole) == "group 0: is none that may be"


def test_a_good_plan_is_accepted_and_survives_its_encoding() -> None:
    assert problem(GOOD) is None
    assert plans.decode(GOOD.encode()) == GOOD
    assert GOOD.elements == 25
    assert len(GOOD.digest()) == 16


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        (change(0, reduce_parents=(1, -1)), "2 entries for 3"),
        (change(0, reduce_parents=(1, -1, -1)), "does not lead from 2"),
        (change(0, reduce_parents=(2, -1, 0)), "does not lead from 0"),
        (change(0, reduce_parents=(1, 1, 1)), "is not rooted at 1"),
        (change(0, broadcast_parents=(1, -1, 7)), "does not lead from 2"),
        (change(0, broadcast_parents=(1, -1, 2)), "does not lead from 2"),
        (change(0, root=3), "is not rooted at 3"),
        (change(0, root=-1), "is not rooted at -1"),
        (change(0, stop=11), "expected it to begin at 11"),
        (change(1, start=9), "expected it to begin at 10"),
        (change(1, stop=24), "24 elements of 25"),
        (change(1, room=-1), "share 1 asks for a room of -1 bytes"),
        (change(1, stop=8), r"covers \[10, 8\)"),
        (msgspec.structs.replace(GOOD, chunk=0), "chunk of 0"),
        (msgspec.structs.replace(GOOD, chunk=1 << 23), "chunk of 8388608"),
        (msgspec.structs.replace(GOOD, seconds=0.5), "against a bound"),
        (msgspec.structs.replace(GOOD, seconds=float("nan")), "claims nan"),
        (msgspec.structs.replace(GOOD, bound=-1.0), "against a bound"),
        (msgspec.structs.replace(GOOD, way=-1.0), "claims that a chunk takes -1.0 s"),
        (msgspec.structs.replace(GOOD, way=float("inf")), "claims that a chunk takes inf s"),
        (msgspec.structs.replace(GOOD, participants=("b", "a", "c")), "the round is for"),
        (msgspec.structs.replace(GOOD, kind=plans.REDUCE), "share 1: the receipts .* do not take its reduce tree"),
    ],
)
def test_every_broken_rule_is_named(plan: Plan, expected: str) -> None:
    assert re.search(expected, problem(plan) or "")


class Compared(int):
    """A participant's number that counts how often it is compared."""

    count = 0

    def __eq__(self, other: object) -> bool:
        Compared.count += 1
        return int(self) == other

    __hash__ = int.__hash__


def test_a_chain_is_followed_once_from_whichever_end() -> None:
    """Groups are many, and so are members: with the square of these a plan of few bytes would stop whoever reads it."""
    size = 200
    chain = tuple(Compared(node) for node in (*range(1, size), -1))
    assert plans._check_tree(chain, size - 1, size) is None
    assert Compared.count < 10 * size


def test_a_participant_cannot_stand_twice() -> None:
    plan = msgspec.structs.replace(GOOD, participants=("a", "b", "b"))
    assert "twice" in (plans.validate(plan.encode(), ("a", "b", "b"), 25) or "")


def test_too_many_shares_and_bytes_are_refused() -> None:
    empty = Share(0, 0, 0, (-1,), (-1,))
    crowd = Plan("test", ("a",), (empty,) * (plans.MAX_SHARES + 1), 1, 0.0, 0.0)
    assert "exceed" in (plans.validate(crowd.encode(), ("a",), 0) or "")
    with pytest.raises(RemoteProtocolError, match="exceeds"):
        plans.decode(bytes(plans.MAX_PLAN_BYTES + 1))


@given(st.integers(1, 6), st.integers(0, 40), st.integers(0, 200))
def test_a_plan_is_the_same_whether_it_was_packed_or_not(size: int, shares: int, above: int) -> None:
    names = tuple(f"{n:032x}" for n in range(size))
    trees = [star.star(size, n % size) for n in range(shares)]
    plan = Plan("star", names, tuple(Share(n, n + 1, *tree) for n, tree in enumerate(trees)), 4, 2.0, 1.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plans, "PACKED_ABOVE", above)
        data = plan.encode()
        assert (data[:1] == plans._PACKED) == (len(msgspec.msgpack.encode(plan)) > above)
        assert plans.decode(data) == plan
        digest = plan.digest()
    assert digest == plans.decode(plan.encode()).digest()


def test_a_star_among_four_hundred_clusters_may_be_agreed_on() -> None:
    names = tuple(f"{n:032x}" for n in range(400))
    trees = star.trees(len(names))
    plan = Plan("star", names, tuple(Share(n, n + 1, *tree) for n, tree in enumerate(trees)), 4, 2.0, 1.0)
    assert len(plan.encode()) < plans.MAX_PLAN_BYTES / 8
    assert plans.validate(plan.encode(), names, 400) is None


def test_what_a_packed_plan_comes_to_is_bounded() -> None:
    bomb = zlib.compress(bytes(plans.MAX_UNPACKED_BYTES + 1))
    assert len(bomb) < plans.MAX_PLAN_BYTES
    with pytest.raises(RemoteProtocolError, match=f"exceeds {plans.MAX_UNPACKED_BYTES}"):
        plans.decode(bomb)
    with pytest.raises(RemoteProtocolError, match="cut off"):
        plans.decode(zlib.compress(GOOD.encode())[:-5])


@given(st.binary(max_size=200))
def test_packed_garbage_never_raises_out_of_validate(data: bytes) -> None:
    assert plans.validate(zlib.compress(data), NAMES, 25)
    assert plans.validate(plans._PACKED + data, NAMES, 25)


@given(st.binary(max_size=200))
def test_garbage_never_raises_out_of_validate(data: bytes) -> None:
    assert plans.validate(data, NAMES, 25)


@given(st.integers(0, 100), st.integers(0, 100), st.integers(1, 40))
def test_chunks_cover_a_share_once(start: int, length: int, chunk: int) -> None:
    share = Share(start, start + length, 0, (-1,), (-1,))
    spans = [share.span(index, chunk) for index in range(share.chunks(chunk))]
    covered = [element for first, last in spans for element in range(first, last)]
    assert covered == list(range(start, start + length))


def test_a_codec_is_known_and_its_blocks_are_kept_whole() -> None:
    def coded(codec: str, chunk: int, middle: int) -> str | None:
        first = msgspec.structs.replace(STAR, stop=middle)
        second = msgspec.structs.replace(CHAIN, start=middle, stop=9000)
        return problem(Plan("test", NAMES, (first, second), chunk, 2.0, 1.0, codec), 9000)

    assert coded("int8", 512, 256 * 3) is None
    assert coded("topk", 4096, 8192) is None
    assert "codec 'zip' is not known: use none, bfloat16" in (coded("zip", 512, 256) or "")
    assert "chunk of 500 elements is not of whole blocks of 256" in (coded("int8", 500, 256) or "")
    assert "share 1 begins at 300, not at a block of 256" in (coded("e3m0", 512, 300) or "")
    assert coded("bfloat16", 500, 300) is None


def test_the_codec_is_the_one_that_was_asked_for() -> None:
    def made(codec: str) -> Plan:
        return msgspec.structs.replace(GOOD, codec=codec)

    assert plans.check_codec(made("int8"), "int8") is None
    assert plans.check_codec(made("none"), "int8") is None, "exact is better than asked for"
    assert plans.check_codec(made("int8"), "auto") is None
    assert "asked for was 'none'" in (plans.check_codec(made("bfloat16"), "none") or "")
    assert "asked for was 'auto'" in (plans.check_codec(made("e3m0"), "auto") or "")
