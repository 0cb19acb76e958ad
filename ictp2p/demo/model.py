"""A byte-level transformer, small enough to learn visibly within a minute on one thread of one core.

The architecture is GPT-2's with pre-normalization (Radford et al., 2019), read top to bottom as in nanoGPT: bytes
and positions in, four blocks of causal attention and a perceptron, logits of the next byte out, through the
transposed input embedding (Press and Wolf, 2017). Plain torch: the peer asks nothing of the model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

BYTES = 256


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of a model. The defaults make 0.83 million parameters, 3.3 MB in float32."""

    context: int = 64
    """Bytes that the model sees."""
    layers: int = 4
    heads: int = 4
    width: int = 128


class Block(nn.Module):
    """Attention to earlier bytes, then a perceptron on each; both add to what came in."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads = shape.heads
        self.before_attention = nn.LayerNorm(shape.width)
        self.query_key_value = nn.Linear(shape.width, 3 * shape.width)
        self.attended = nn.Linear(shape.width, shape.width)
        self.before_perceptron = nn.LayerNorm(shape.width)
        self.perceptron = nn.Sequential(
            nn.Linear(shape.width, 4 * shape.width), nn.GELU(), nn.Linear(4 * shape.width, shape.width)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, context, width) to the same shape."""
        x = x + self._attend(self.before_attention(x))
        out: Tensor = x + self.perceptron(self.before_perceptron(x))
        return out

    def _attend(self, x: Tensor) -> Tensor:
        batch, context, width = x.shape
        split = self.query_key_value(x).view(batch, context, 3, self.heads, width // self.heads)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        out: Tensor = self.attended(seen.transpose(1, 2).reshape(batch, context, width))
        return out


class ByteTransformer(nn.Module):
    """Predicts the next byte."""

    def __init__(self, shape: Shape = Shape()) -> None:
        super().__init__()
        self.byte = nn.Embedding(BYTES, shape.width)
        self.position = nn.Parameter(torch.zeros(shape.context, shape.width))
        self.blocks = nn.Sequential(*(Block(shape) for _ in range(shape.layers)))
        self.norm = nn.LayerNorm(shape.width)
        # Small enough that the first loss is that of a uniform guess, ln 256 = 5.55.
        nn.init.normal_(self.byte.weight, std=0.02)
        nn.init.normal_(self.position, std=0.02)

    def forward(self, x: Tensor, following: Tensor) -> Tensor:
        """Mean cross entropy, in nats per byte, of predicting `following` from `x`, both (batch, context)."""
        hidden = self.byte(x) + self.position[: x.shape[1]]
        logits = functional.linear(self.norm(self.blocks(hidden)), self.byte.weight)
        return functional.cross_entropy(logits.flatten(0, 1), following.flatten())


Batch = tuple[Tensor, Tensor]


def batches(text: bytes, size: int, context: int, seed: int) -> Iterator[Batch]:
    """Random windows of `text`, `size` at a time, for ever; the same ones for the same seed."""
    data = _tensor(text)
    generator = torch.Generator().manual_seed(seed)
    while True:
        starts = torch.randint(len(data) - context, (size, 1), generator=generator)
        windows = data[starts + torch.arange(context + 1)]
        yield windows[:, :-1], windows[:, 1:]


@torch.no_grad()
def validation_loss(model: nn.Module, parameters: Mapping[str, Tensor], text: bytes, context: int, size: int) -> float:
    """Loss of `model` with `parameters` in place of its own, on `size` windows spread evenly over `text`."""
    data = _tensor(text)
    starts = torch.linspace(0, len(data) - context - 1, size).long()[:, None]
    windows = data[starts + torch.arange(context + 1)]
    loss: Tensor = torch.func.functional_call(model, dict(parameters), (windows[:, :-1], windows[:, 1:]))
    return loss.item()


def _tensor(text: bytes) -> Tensor:
    return torch.frombuffer(bytearray(text), dtype=torch.uint8).long()
