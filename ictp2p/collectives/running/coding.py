"""The arithmetic of a collective whose chunks are encoded: what `sums.Adder` is where they travel as they are.

Sums are made in float32, in the same fixed order. The root encodes its result, decodes that, and keeps what it decoded.
A result is passed on in the very bytes in which it was made: everybody decodes the same ones and holds the same bits.
They are never made anew from the outputs. Those may be halves, and what was rounded once more has other bytes.
What is no number is made the same bits where it was decoded, since conversions leave those open (`alike`).

The bytes of a result are kept until the last follower has been sent them. No participant is further behind the root of
a share than its window (`exchange`), so what waits for a slow link is no more than the room that partials have.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import torch

from ictp2p.collectives.codecs.codec import Codec
from ictp2p.collectives.codecs.schemes import Scheme
from ictp2p.collectives.running.alike import doubtful, settle
from ictp2p.collectives.running.flat import Flat
from ictp2p.collectives.running.sums import Weights, normed
from ictp2p.errors import ConfigError

_ENCODED = frozenset({torch.float32, torch.bfloat16, torch.float16})


class Coder:
    """Encodes and adds up the chunks of one participant's collective.

    Args:
        scheme: how each kind of chunk is written.
        inputs: our own contribution; never written.
        outputs: where results go.
        weights: factors and divisor.
        me: our index.
        chunk: the most elements in a chunk.

    Raises:
        ConfigError: the elements cannot be encoded, or the operation is none that adds.
    """

    def __init__(self, scheme: Scheme, inputs: Flat, outputs: Flat, weights: Weights, me: int, chunk: int) -> None:
        if inputs.dtype not in _ENCODED:
            raise ConfigError(f"{inputs.dtype} cannot be encoded: reduce it with codec 'none'")
        if weights.combine is not np.add:
            raise ConfigError("only sums and averages can be encoded: reduce others with codec 'none'")
        self._scheme = scheme
        self._inputs, self._outputs = inputs, outputs
        self._factors = normed(weights.factors)  # partials may be float16, whose range is short
        self._divisor = math.fsum(self._factors) if weights.divisor != 1 else 1.0
        self._me = me
        self._total = torch.empty(chunk, dtype=torch.float32, device="cpu")
        self._plain = torch.empty_like(self._total)
        self.chunk_bytes = max(scheme.contribution.size(chunk), scheme.partial.size(chunk))
        """The most bytes of a contribution or a partial."""
        self._wire = torch.empty(self.chunk_bytes, dtype=torch.uint8, device="cpu")
        self._results: dict[int, tuple[memoryview, int]] = {}
        """By first element: the bytes of results that are still to be sent, and to how many."""

    def partial_size(self, elements: int, *, own: bool) -> int:
        """Count the bytes of a chunk that climbs: a contribution alone (`own`), or a sum of several."""
        return (self._scheme.contribution if own else self._scheme.partial).size(elements)

    def result_size(self, elements: int) -> int:
        """Count the bytes of a result."""
        return self._scheme.result.size(elements)

    def check(self, body: memoryview, span: tuple[int, int], *, own: bool) -> None:
        """Check a chunk of elements `[start, stop)` on arrival, so that whoever sent it answers for it.

        Raises:
            RemoteProtocolError: it does not decode.
        """
        codec = self._scheme.contribution if own else self._scheme.partial
        codec.check(torch.frombuffer(body, dtype=torch.uint8), span[1] - span[0])

    def contribution(self, start: int, stop: int) -> memoryview:
        """Encode our own elements; the bytes stand until the next call."""
        return self._encoded(self._scheme.contribution, self._own(start, stop))

    def partial(self, start: int, stop: int, staged: Mapping[int, tuple[memoryview, bool]]) -> memoryview:
        """Add our elements and the staged ones (participant -> bytes, its own alone or not), and encode the sum."""
        return self._encoded(self._scheme.partial, self._sum(start, stop, staged))

    def finish(self, start: int, stop: int, staged: Mapping[int, tuple[memoryview, bool]], copies: int) -> None:
        """Add up as `partial` does, divide once, and leave in the outputs what others will decode.

        Args:
            start: the first element.
            stop: the one after the last.
            staged: what others have sent.
            copies: how often `result` will be asked for.
        """
        total = self._sum(start, stop, staged)
        if self._divisor != 1:
            total.div_(self._divisor)
        wire = torch.empty(self._scheme.result.size(len(total)), dtype=torch.uint8, device="cpu")
        self._scheme.result.encode(total, wire)
        self._decode(start, stop, wire)
        self._keep(start, wire.numpy().data, copies)

    def land(self, start: int, stop: int, body: memoryview, copies: int) -> None:
        """Decode a result that has arrived; keep its bytes for as many `copies` as are to be passed on."""
        self._decode(start, stop, torch.frombuffer(body, dtype=torch.uint8))
        self._keep(start, memoryview(bytes(body)) if copies else body, copies)

    def result(self, start: int) -> memoryview:
        """Give the bytes of a result, for one of its copies; they stand as long as the caller holds them."""
        wire, copies = self._results.pop(start)
        self._keep(start, wire, copies - 1)
        return wire

    def _keep(self, start: int, wire: memoryview, copies: int) -> None:
        if copies:
            self._results[start] = wire, copies

    def _own(self, start: int, stop: int) -> torch.Tensor:
        ranges = self._inputs.ranges(start, stop)
        if len(ranges) == 1 and ranges[0].dtype == torch.float32:
            return ranges[0]
        offset = 0
        for tensor in ranges:
            self._plain[offset : offset + len(tensor)] = tensor
            offset += len(tensor)
        return self._plain[:offset]

    def _encoded(self, codec: Codec, elements: torch.Tensor) -> memoryview:
        wire = self._wire[: codec.size(len(elements))]
        codec.encode(elements, wire)
        return wire.numpy().data

    def _sum(self, start: int, stop: int, staged: Mapping[int, tuple[memoryview, bool]]) -> torch.Tensor:
        total = self._total[: stop - start].zero_()
        for node in sorted([*staged, self._me]):
            factor = self._factors[node]
            if node == self._me:
                total.add_(self._own(start, stop), alpha=factor)
                continue
            body, own = staged[node]
            wire = torch.frombuffer(body, dtype=torch.uint8)
            (self._scheme.contribution if own else self._scheme.partial).add(wire, total, factor if own else 1.0)
        return total

    def _decode(self, start: int, stop: int, wire: torch.Tensor) -> None:
        ranges = self._outputs.ranges(start, stop)
        in_place = len(ranges) == 1 and ranges[0].dtype == torch.float32
        plain = ranges[0] if in_place else self._plain[: stop - start]
        self._scheme.result.decode(wire, plain)
        nans, parts = doubtful(plain), [plain] if in_place else torch.split(plain, [len(t) for t in ranges])
        for tensor, part in zip(ranges, parts, strict=True):
            if not in_place:
                tensor.copy_(part)
            if nans:
                settle(tensor, part)
