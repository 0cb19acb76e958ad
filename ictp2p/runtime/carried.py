"""Which parts of a leader's tensors each group of a round is about, where not all average all.

A pair's vector is the leader's whole one. Of modules each group carries some, which lie apart in the leader's vector,
each leader's in its own order of the same keys; what is copied comes from the agreed state, or goes behind the averages
(`rounds.modules.spans`). Followers are told of ranges of the whole vector, and wait for all of it, so ranges that
nobody sends anything for are reported as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import torch

from ictp2p.sync.rounds.modules import card_of, groups, spans
from ictp2p.sync.rounds.pairs import pairs
from ictp2p.sync.values import Open
from ictp2p.types import ClusterId


@dataclass(frozen=True, slots=True)
class Carried:
    """One group's part: what is brought, where the result goes, and where that lies in the leader's outputs."""

    inputs: Sequence[torch.Tensor]
    outputs: Sequence[torch.Tensor]
    ranges: Sequence[tuple[int, int]] = ()

    def told(self, report: Callable[[int, int], None]) -> Callable[[int, int], None]:
        """What is to be told of the group's elements, as ranges of the leader's outputs."""
        ends = list(pairwise(accumulate((stop - start for start, stop in self.ranges), initial=0)))

        def tell(first: int, last: int) -> None:
            for (start, _), (begins, stops) in zip(self.ranges, ends, strict=True):
                low, high = max(first, begins), min(last, stops)
                if low < high:
                    report(start + low - begins, start + high - begins)

        return tell


def shares(
    opened: Open,
    me: ClusterId,
    inputs: Sequence[torch.Tensor],
    outputs: Sequence[torch.Tensor],
    holds: Callable[[bytes], Sequence[torch.Tensor]],
) -> dict[int, Carried]:
    """By number of the group, what each group that a cluster is in carries of its tensors."""
    if opened.spec.grouping == "pairs":
        met = pairs(opened.state.digest, [p.cluster for p in opened.participants])
        number = next(number for number, pair in enumerate(met) if me in pair)
        return {number: Carried(inputs, outputs, ((0, sum(output.numel() for output in outputs)),))}
    places = spans(card_of(next(p for p in opened.participants if p.cluster == me)))
    (brought,), (result,) = inputs, outputs
    found = {}
    for number, group in enumerate(groups(opened.participants)):
        if me not in group.clusters:
            continue
        if group.root == me:
            copied = [tensor for key in group.keys for tensor in holds(key)]
            found[number] = Carried(copied, copied)
            continue
        cuts = [places[key][group.root is not None] for key in group.keys]
        mine = [brought[cut] for cut in cuts] if group.root is None else []
        found[number] = Carried(mine, [result[cut] for cut in cuts], [(cut.start, cut.stop) for cut in cuts])
    return found


def copied(opened: Open, me: ClusterId) -> list[bytes]:
    """The keys of the modules that a cluster gives others copies of."""
    if opened.spec.grouping != "modules":
        return []
    return [key for group in groups(opened.participants) if group.root == me for key in group.keys]


def gaps(parts: Iterable[Carried], total: int) -> Iterator[tuple[int, int]]:
    """The ranges of `total` elements that are in none of the parts."""
    at = 0
    for start, stop in sorted(each for part in parts for each in part.ranges):
        if start > at:
            yield at, start
        at = max(at, stop)
    if at < total:
        yield at, total
