"""A plan is a packing of trees: plain data that says who adds up which elements, and who copies them to whom.

The vector is cut into *shares*. Each share has one root. Its contributions climb the share's reduce tree, the
root finishes the sum, and the result descends the share's broadcast tree. By Edmonds' theorem on packing
arborescences an optimal all-reduce on any graph is such a packing, and the schedules that people know are
special cases: the direct reduce-scatter/all-gather is one star per participant, the ring is one chain per
participant, a parameter server is a single star. So there is one format, one validator and one executor.

Every element has exactly one root, which computes it once; all others copy its bytes. Results are therefore
bit-identical on every participant by construction, whatever the order of arrival. The one exception is a plan of kind
`ONE_SHOT`, for what is so small that a second hop would cost more than all of its bytes (`one_shot`).

A plan is agreed as bytes. Participants trust nothing in them: `validate` names the first rule that is broken.
"""

from __future__ import annotations

import functools
import hashlib
import math
import zlib
from collections.abc import Sequence

import msgspec

from ictp2p.collectives.codecs.prices import AUTO, CHOICES, PRICES
from ictp2p.errors import RemoteProtocolError
from ictp2p.wire import MALFORMED

MAX_PLAN_BYTES = 256 * 1024
"""Of a plan as it is agreed on; the first byte of one that is packed differs from that of one that is not."""
PACKED_ABOVE = 64 * 1024
"""Bytes from which a plan is packed: among hundreds of participants a star is hundreds of tables that are nearly alike,
of which a thirtieth is left."""
MAX_UNPACKED_BYTES = 8 * 1024 * 1024
"""What a packed plan may come to: a star among a thousand participants."""
MAX_SHARES = 4096
MAX_CHUNK_ELEMENTS = 1 << 22
NO_PARENT = -1
"""What stands in a parent table at the root."""
BROADCAST = "broadcast"
"""The kind of a plan that only copies: its reduce tables hold nothing but `NO_PARENT`."""
REDUCE = "reduce"
"""The kind of a plan whose results stay at their roots. A receipt of each takes the result's way down, which is the
reduce tree again: so contributions keep their windows, and nobody needs room for what it did not ask for."""
ONE_SHOT = "one_shot"
"""The kind of a plan without trees: everybody sends all of its contribution to everybody, and adds up for itself."""
MAX_ONE_SHOT = 64 * 1024
"""Elements of one. In bytes it has to fit into what may be sent to who has not begun (`channel.EAGER_BYTES`)."""
_PACKED = zlib.compress(b"")[:1]
GROUPS = "groups"
"""The kind of a plan that is made of others, each for some participants and a vector of their own."""


class Share(msgspec.Struct, frozen=True, array_like=True):
    """Elements `[start, stop)` and the two trees that carry them. Parents are participant indices."""

    start: int
    stop: int
    root: int
    reduce_parents: tuple[int, ...]
    """To whom each participant sends its (partial) sum; `NO_PARENT` at the root."""
    broadcast_parents: tuple[int, ...]
    """From whom each participant gets the result; `NO_PARENT` at the root."""
    room: int = 0
    """Bytes that whoever adds keeps for each contribution; 0: an even part of `windows.STAGING_BYTES`."""

    def chunks(self, chunk: int) -> int:
        """Count the chunks of `chunk` elements that this share is cut into."""
        return -(-(self.stop - self.start) // chunk)

    def span(self, index: int, chunk: int) -> tuple[int, int]:
        """Give the elements `[start, stop)` of chunk number `index`."""
        start = self.start + index * chunk
        return start, min(start + chunk, self.stop)


class Plan(msgspec.Struct, frozen=True, array_like=True):
    """Who adds up what, in which trees, and how long that should take."""

    kind: str
    """Which schedule it is, for people: star, ring, parameter_server, halving_doubling or tree; but `BROADCAST`,
    `REDUCE`, `ONE_SHOT` and `GROUPS` say what is done."""
    participants: tuple[str, ...]
    """Peer ids; every index in the plan points into this tuple."""
    shares: tuple[Share, ...]
    """Consecutive, covering every element once."""
    chunk: int
    """Elements per chunk: the unit of pipelining."""
    seconds: float
    """Predicted duration, latency included."""
    bound: float
    """Seconds that no plan can beat on the links that the planner was given."""
    codec: str = "none"
    """How chunks are written on the wire (`codecs.schemes`)."""
    groups: tuple[Plan, ...] = ()
    """Of kind `GROUPS`: each group's own all-reduce or broadcast, and no shares beside them."""
    way: float = 0.0
    """Seconds in which a chunk goes up and down its longest way."""

    @property
    def elements(self) -> int:
        """How many elements the plan covers."""
        return self.shares[-1].stop if self.shares else 0

    def room(self, node: int) -> int:
        """Count the bytes that the plan asks participant `node` to keep for contributions."""
        return sum(share.reduce_parents.count(node) * share.room for share in self.shares)

    def results(self, node: int) -> tuple[Share, ...]:
        """The shares whose result participant `node` gets: all of a sum, others' of a copy, its own of a reduction."""
        if self.kind not in (BROADCAST, REDUCE):
            return self.shares
        return tuple(share for share in self.shares if (share.root == node) == (self.kind == REDUCE))

    @property
    def source(self) -> str | None:
        """From whom all of it is copied, empty if from several; None where sums are made."""
        roots = {self.participants[share.root] for share in self.shares}
        if self.kind != BROADCAST:
            return None
        return roots.pop() if len(roots) == 1 else ""

    def encode(self) -> bytes:
        """Write the plan as the bytes that are agreed on."""
        data = self._unpacked()
        return data if len(data) <= PACKED_ABOVE else zlib.compress(data)

    def digest(self) -> bytes:
        """Hash the plan to 16 bytes, the same however it was packed, for the fence around its frames."""
        return hashlib.blake2b(self._unpacked(), digest_size=16).digest()

    def _unpacked(self) -> bytes:
        return msgspec.msgpack.encode(self)


@functools.lru_cache(4)  # a plan is read when it is judged, when it is run, and when it is asked whether it stands
def decode(data: bytes) -> Plan:
    """Read a plan.

    Raises:
        RemoteProtocolError: these are not a plan's bytes.
    """
    if len(data) > MAX_PLAN_BYTES:
        raise RemoteProtocolError(f"plan of {len(data)} bytes exceeds {MAX_PLAN_BYTES}")
    try:
        return msgspec.msgpack.decode(_unpack(data), type=Plan)
    except MALFORMED as error:
        raise RemoteProtocolError(f"plan does not decode: {error}") from error


def _unpack(data: bytes) -> bytes:
    """Give a plan's bytes as they were before they were packed, if they were, and no more than may be."""
    if data[:1] != _PACKED:
        return data
    unpacking = zlib.decompressobj()
    try:
        unpacked = unpacking.decompress(data, MAX_UNPACKED_BYTES)
    except zlib.error as error:
        raise RemoteProtocolError(f"plan does not unpack: {error}") from error
    if not unpacking.eof:
        raise RemoteProtocolError(f"plan is cut off, or exceeds {MAX_UNPACKED_BYTES} bytes")
    return unpacked


def validate(data: bytes, participants: Sequence[str], elements: int) -> str | None:
    """Check agreed plan bytes for `participants` and `elements`; say what is wrong, or None."""
    try:
        plan = decode(data)
    except RemoteProtocolError as error:
        return str(error)
    return check(plan, participants, elements)


def check_codec(plan: Plan, asked: str) -> str | None:
    """Say what is wrong with the plan's codec where `asked` was asked for, or None."""
    allowed = ("none", *CHOICES) if asked == AUTO else ("none", asked)
    wrong = next((one.codec for one in (plan, *plan.groups) if one.codec not in allowed), None)
    return None if wrong is None else f"the plan is for codec {wrong!r}, asked for was {asked!r}"


def check(plan: Plan, participants: Sequence[str], elements: int) -> str | None:
    """Check a decoded plan as `validate` does."""
    if plan.kind == GROUPS or plan.groups:
        return _check_groups(plan, participants)
    if plan.kind == BROADCAST and any(
        share.reduce_parents.count(NO_PARENT) != len(participants) for share in plan.shares
    ):
        return "a broadcast has a reduce tree"
    if plan.participants != tuple(participants) or not participants:
        return f"plan is for {plan.participants!r}, the round is for {tuple(participants)!r}"
    if len(set(participants)) != len(participants):
        return f"a participant stands twice in {tuple(participants)!r}"
    if not 1 <= plan.chunk <= MAX_CHUNK_ELEMENTS:
        return f"chunk of {plan.chunk} elements is not within 1..{MAX_CHUNK_ELEMENTS}"
    if not (math.isfinite(plan.seconds) and math.isfinite(plan.bound) and 0 <= plan.bound <= plan.seconds):
        return f"claims {plan.seconds} s against a bound of {plan.bound} s"
    if not (math.isfinite(plan.way) and plan.way >= 0):
        return f"claims that a chunk takes {plan.way} s"
    if plan.codec not in PRICES:
        return f"codec {plan.codec!r} is not known: use {', '.join(PRICES)}"
    if plan.codec != "none" and plan.kind in (BROADCAST, REDUCE):
        return f"a {plan.kind} is not encoded, and this one says {plan.codec!r}"
    if plan.kind == ONE_SHOT:
        return _check_one_shot(plan, elements)
    return _check_blocks(plan) or _check_shares(plan, elements)


def one_shot_plan(participants: Sequence[str], elements: int, seconds: float = 0.0, bound: float = 0.0) -> Plan:
    """Make the plan in which everybody sends `elements` to everybody."""
    nobody = (NO_PARENT,) * len(participants)
    share = Share(0, elements, 0, nobody, nobody)
    return Plan(ONE_SHOT, tuple(participants), (share,), max(1, elements), seconds, bound)


def _check_one_shot(plan: Plan, elements: int) -> str | None:
    if not 1 <= elements <= MAX_ONE_SHOT:
        return f"{elements} elements in one shot are not within 1..{MAX_ONE_SHOT}"
    nobody = (NO_PARENT,) * len(plan.participants)
    if plan.codec != "none" or plan.shares != (Share(0, elements, 0, nobody, nobody),):
        return f"a {ONE_SHOT} has one share of all {elements} elements, no trees, and no codec"
    return None


def _check_groups(plan: Plan, participants: Sequence[str]) -> str | None:
    if plan.kind != GROUPS or plan.shares:
        return f"a plan of kind {plan.kind!r} has {len(plan.groups)} groups and {len(plan.shares)} shares"
    if plan.participants != tuple(participants) or not participants:
        return f"plan is for {plan.participants!r}, the round is for {tuple(participants)!r}"
    for number, group in enumerate(plan.groups):
        odd = group.kind in (GROUPS, REDUCE, ONE_SHOT) or not set(group.participants) <= set(participants)
        wrong = "is none that may be" if odd else check(group, group.participants, group.elements)
        if wrong is not None:
            return f"group {number}: {wrong}"
    return None


def _check_blocks(plan: Plan) -> str | None:
    block = PRICES[plan.codec].block
    if plan.chunk % block:
        return f"chunk of {plan.chunk} elements is not of whole blocks of {block}"
    odd = next((n for n, share in enumerate(plan.shares) if share.start % block and share.stop > share.start), None)
    return None if odd is None else f"share {odd} begins at {plan.shares[odd].start}, not at a block of {block}"


def _check_shares(plan: Plan, elements: int) -> str | None:
    if len(plan.shares) > MAX_SHARES:
        return f"{len(plan.shares)} shares exceed {MAX_SHARES}"
    position = 0
    for number, share in enumerate(plan.shares):
        if plan.kind == REDUCE and share.broadcast_parents != share.reduce_parents:
            return f"share {number}: the receipts of a reduction do not take its reduce tree"
        if share.start != position or share.stop < share.start:
            return f"share {number} covers [{share.start}, {share.stop}), expected it to begin at {position}"
        if share.room < 0:
            return f"share {number} asks for a room of {share.room} bytes"
        position = share.stop
        for name, parents in (("reduce", share.reduce_parents), ("broadcast", share.broadcast_parents)):
            if name == "reduce" and plan.kind == BROADCAST and parents == (NO_PARENT,) * len(plan.participants):
                continue
            problem = _check_tree(parents, share.root, len(plan.participants))
            if problem:
                return f"share {number}: {name} tree {problem}"
    return None if position == elements else f"shares cover {position} elements of {elements}"


@functools.lru_cache(1024)  # a plan is checked when it is agreed on and when it is run, and has each tree twice
def _check_tree(parents: tuple[int, ...], root: int, size: int) -> str | None:
    """Check that `parents` is one tree over `size` participants with `root` on top."""
    if len(parents) != size:
        return f"has {len(parents)} entries for {size} participants"
    if not 0 <= root < size or parents[root] != NO_PARENT:
        return f"is not rooted at {root}"
    reached = {root}
    for start in range(size):
        path = []
        node = start
        while node not in reached:
            path.append(node)
            node = parents[node]
            if not 0 <= node < size or len(path) > size:  # so long only in a circle
                return f"does not lead from {start} to its root {root}"
        reached.update(path)
    return None
