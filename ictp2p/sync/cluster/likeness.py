"""Whether the workers of a cluster step alike, with their gradients averaged already.

They hold the same parameters before each step and have the same gradient for it; so they hold the same ones after it,
if their optimizers are set alike. Where one has another learning rate they part, and nothing breaks: the leader brings
to each round what *it* has become, and what the others have become is replaced by the result. A cluster would train
with the leader's settings, whoever leads at the moment, and nobody would know. So each says a digest of its optimizer's
options with its head (`averaging`), and where they differ all are asked for the words, once, to tell people.

Not at once: a schedule that is set a step earlier here than there is a matter of one step, and of no consequence.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from typing import Any

import msgspec
import torch

from ictp2p.errors import LocalGroupError
from ictp2p.sync import options
from ictp2p.sync.cluster.averaging import OPTIONS, Heads
from ictp2p.sync.mesh import Group
from ictp2p.wire import MALFORMED

PATIENCE = 3
"""Steps in a row in which options have to differ before it is told."""
_MOST_TOLD = 4
"""Options that differ, of those that are named."""
_LONGEST = 16
"""Elements of the longest tensor that is an option: no more of them is a setting of anything."""
_OF_NO_CONSEQUENCE = frozenset({"params", "param_names", "foreach", "fused", "capturable", "differentiable"})
"""What a group has besides: which parameters, and how its arithmetic is run."""
_LENGTH = struct.Struct("<Q")

Words = dict[str, str]


class Likeness:
    """Compares the options of this worker's inner optimizer with those of the others in its group.

    Args:
        inner: the optimizer.
        warn: tells people.
    """

    def __init__(self, inner: torch.optim.Optimizer, warn: Callable[[str], None]) -> None:
        self._inner, self._warn = inner, warn
        self._words: Words = {}
        self._unlike = 0
        """Steps in a row in which somebody's options were others."""
        self._told = False

    @property
    def asks(self) -> bool:
        """Whether all are to say at this step what their options are."""
        return self._unlike >= PATIENCE and not self._told

    def digest(self, group: Group) -> bytes:
        """What to say of the options with which this step is taken; nothing, where nobody hears it."""
        if group.size == 1:
            return bytes(OPTIONS)
        self._words = words(self._inner.param_groups)
        return hashlib.blake2b(msgspec.msgpack.encode(self._words), digest_size=OPTIONS).digest()

    def heard(self, group: Group, heads: Heads) -> None:
        """Act on what all have said; all of them come to the same, and ask or do not.

        Raises:
            LocalGroupError: the group broke.
        """
        self._unlike = self._unlike + 1 if heads.unlike else 0
        if heads.unlike and heads.asks:
            said = _exchange(group, self._words)
            if not self._told:
                self._told = True
                self._warn(in_words(group.members, said))


def words(groups: Sequence[Mapping[str, Any]]) -> Words:
    """The options of an optimizer's groups, by name, in words."""
    return {
        f"{name} of group {number}": _word(group[name])
        for number, group in enumerate(groups)
        for name in sorted(group.keys() - _OF_NO_CONSEQUENCE)
    }


def in_words(members: Sequence[str], said: Sequence[Words]) -> str:
    """What differs between the leader and the first worker that is set otherwise."""
    worker, other = next((m, each) for m, each in zip(members, said, strict=True) if each != said[0])
    leader, wanted = members[0], said[0]
    unlike = [name for name in {**wanted, **other} if wanted.get(name) != other.get(name)]
    parts = [f"{n} is {wanted.get(n, 'not there')} and {other.get(n, 'not there')}" for n in unlike[:_MOST_TOLD]]
    more = f", and {len(unlike) - _MOST_TOLD} more differ" if len(unlike) > _MOST_TOLD else ""
    return (
        f"leader {leader} and worker {worker} of one cluster step with different options: {', '.join(parts)}{more}. "
        "What the leader makes of it counts alone: set them alike, and give schedules the same length"
    )


def _word(value: object) -> str:
    """A value, alike for what is alike: a rate that is a tensor is rounded, and one of NumPy's has another name."""
    value = options.scalar(value)
    if isinstance(value, torch.Tensor) and value.numel() <= _LONGEST:
        value = value.tolist()
    if value is None or isinstance(value, bool | str):
        return repr(value)
    if isinstance(value, Real):
        return f"{float(value):.6g}"
    return f"({', '.join(map(_word, value))})" if isinstance(value, list | tuple) else type(value).__name__


def _exchange(group: Group, mine: Words) -> list[Words]:
    """What every worker says, in the order of their ranks."""
    encoded = msgspec.msgpack.encode(mine)
    lengths = [_LENGTH.unpack(reply)[0] for reply in group.all_gather(_LENGTH.pack(len(encoded)))]
    replies = group.all_gather(encoded.ljust(max(lengths), b"\0"))
    try:
        return [msgspec.msgpack.decode(r[:n], type=Words) for r, n in zip(replies, lengths, strict=True)]
    except MALFORMED as error:
        raise LocalGroupError(f"what a worker says of its options does not decode: {error}") from error
