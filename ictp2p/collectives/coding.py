"""The arithmetic of a collective whose chunks are encoded: what `tensors.Adder` is where they travel as they are.

Sums are made in float32, in the same fixed order. The root encodes its result, decodes that, and keeps what it decoded:
everybody holds the same bits. A result is passed on in the bytes in which it was made; those of the last ones are at
hand, older ones are encoded anew from the outputs, since encoding what was decoded changes nothing. So what waits for
a slow link costs no memory.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping

import numpy as np
import torch

from ictp2p.collectives.codecs.codec import Codec
from ictp2p.collectives.codecs.schemes import Scheme
from ictp2p.collectives.tensors import Array, Flat, Weights
from ictp2p.errors import ConfigError

KEPT_BYTES = 8 * 1024 * 1024
"""Results at hand in encoded form."""
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
        self._weights, self._me = weights, me
        self._total, self._plain = torch.empty(chunk), torch.empty(chunk)
        self.chunk_bytes = max(scheme.contribution.size(chunk), scheme.partial.size(chunk))
        """The most bytes of a contribution or a partial."""
        self._wire = torch.empty(self.chunk_bytes, dtype=torch.uint8)
        self._results: OrderedDict[int, Array] = OrderedDict()
        self._kept = max(2, KEPT_BYTES // scheme.result.size(chunk))

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

    def finish(self, start: int, stop: int, staged: Mapping[int, tuple[memoryview, bool]]) -> None:
        """Add up as `partial` does, divide once, and leave in the outputs what others will decode."""
        total = self._sum(start, stop, staged)
        if self._weights.divisor != 1:
            total.div_(self._weights.divisor)
        wire = torch.empty(self._scheme.result.size(len(total)), dtype=torch.uint8)
        self._scheme.result.encode(total, wire)
        self._decode(start, stop, wire)
        self._keep(start, wire.numpy())

    def land(self, start: int, stop: int, body: memoryview, *, passed_on: bool) -> None:
        """Decode a result that has arrived; keep its bytes if it is to be passed on."""
        wire = np.frombuffer(body, np.uint8)
        if passed_on:
            wire = wire.copy()
            self._keep(start, wire)
        self._decode(start, stop, torch.from_numpy(wire) if passed_on else torch.frombuffer(body, dtype=torch.uint8))

    def result(self, start: int, stop: int) -> memoryview:
        """Give the bytes of a result that is in the outputs; they stand as long as the caller holds them."""
        if start not in self._results:
            result, flat = self._plain[: stop - start], self._outputs.ranges(start, stop)
            offset = 0
            for tensor in flat:
                result[offset : offset + len(tensor)] = tensor
                offset += len(tensor)
            wire = torch.empty(self._scheme.result.size(stop - start), dtype=torch.uint8)
            self._scheme.result.encode(result, wire)
            self._keep(start, wire.numpy())
        return self._results[start].data

    def _keep(self, start: int, wire: Array) -> None:
        self._results[start] = wire
        while len(self._results) > self._kept:
            self._results.popitem(last=False)

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
            factor = self._weights.factors[node]
            if node == self._me:
                total.add_(self._own(start, stop), alpha=factor)
                continue
            body, own = staged[node]
            wire = torch.frombuffer(body, dtype=torch.uint8)
            (self._scheme.contribution if own else self._scheme.partial).add(wire, total, factor if own else 1.0)
        return total

    def _decode(self, start: int, stop: int, wire: torch.Tensor) -> None:
        ranges = self._outputs.ranges(start, stop)
        if len(ranges) == 1 and ranges[0].dtype == torch.float32:
            self._scheme.result.decode(wire, ranges[0])
            return
        plain = self._plain[: stop - start]
        self._scheme.result.decode(wire, plain)
        offset = 0
        for tensor in ranges:
            tensor.copy_(plain[offset : offset + len(tensor)])
            offset += len(tensor)
