import itertools
import math

import torch

from ictp2p.demo import model
from ictp2p.demo.model import ByteTransformer, Shape

SMALL = Shape(context=16, layers=2, heads=2, width=32)


def test_the_size_is_as_documented() -> None:
    assert 0.8e6 < sum(p.numel() for p in ByteTransformer().parameters()) < 1e6


def test_it_begins_as_a_uniform_guess() -> None:
    torch.manual_seed(0)
    x, following = next(model.batches(bytes(range(256)) * 10, 8, 64, seed=0))
    assert abs(ByteTransformer()(x, following).item() - math.log(256)) < 0.15


def test_no_byte_sees_a_later_one() -> None:
    torch.manual_seed(0)
    hidden = ByteTransformer(SMALL).blocks
    x = torch.randn(1, 16, 32)
    changed = x.clone()
    changed[0, 9:] += 1
    assert torch.equal(hidden(x)[0, :9], hidden(changed)[0, :9])
    assert not torch.equal(hidden(x)[0, 9:], hidden(changed)[0, 9:])


def test_it_learns() -> None:
    torch.manual_seed(0)
    text = b"the quick brown fox jumps over the lazy dog. " * 50
    net = ByteTransformer(SMALL)
    optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3)
    before = model.validation_loss(net, dict(net.named_parameters()), text, 16, 32)
    for x, following in itertools.islice(model.batches(text, 8, 16, seed=0), 60):
        net(x, following).backward()
        optimizer.step()
        optimizer.zero_grad()
    assert model.validation_loss(net, dict(net.named_parameters()), text, 16, 32) < before / 2


def test_batches_are_windows_of_the_text_and_repeat_with_their_seed() -> None:
    text = bytes(range(200))
    x, following = next(model.batches(text, 5, 16, seed=3))
    assert x.shape == following.shape == (5, 16)
    assert torch.equal(x + 1, following)
    assert torch.equal(next(model.batches(text, 5, 16, seed=3))[0], x)
    assert not torch.equal(next(model.batches(text, 5, 16, seed=4))[0], x)


def test_validation_uses_the_parameters_given_and_changes_none() -> None:
    torch.manual_seed(0)
    net, other = ByteTransformer(SMALL), ByteTransformer(SMALL)
    text = bytes(range(256)) * 4
    own = {name: p.detach().clone() for name, p in net.named_parameters()}
    loss = model.validation_loss(net, dict(other.named_parameters()), text, 16, 8)
    assert loss == model.validation_loss(other, dict(other.named_parameters()), text, 16, 8)
    assert loss != model.validation_loss(net, own, text, 16, 8)
    assert all(torch.equal(p, own[name]) for name, p in net.named_parameters())
