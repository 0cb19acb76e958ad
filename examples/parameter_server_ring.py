"""Data-parallel training with point-to-point messages: a parameter server and a ring all-reduce, written out.

Three nodes train one language model (Qwen3, small and with random weights, if `ictp2p[qwen]` is installed; else the
demo's byte-level transformer), each on 24 samples of its own. Gradients are averaged by one of two functions that know
nothing but `isend` and `irecv`; after every epoch the parameters must be the same bits on all nodes.

    torchrun --nproc-per-node 3 examples/parameter_server_ring.py --how ring
    torchrun --nproc-per-node 3 examples/parameter_server_ring.py --how parameter_server

Both send what they can at once and wait only for what they need next. The ring moves 2 (n-1)/n of the gradient over
every link, the server n-1 times the gradient over its own; `all_reduce` on this group has the ring's load, in two hops.
"""

import argparse
import hashlib

import torch
import torch.distributed as dist

import ictp2p.torch_backend  # noqa: F401  (makes the backend known)


def parameter_server(gradients: list[torch.Tensor], server: int = 0) -> None:
    """Every node sends its gradients to the server, which averages them in the order of nodes and sends them back."""
    rank, size = dist.get_rank(), dist.get_world_size()
    if rank != server:
        sending = [dist.isend(gradient, server) for gradient in gradients]
        wait(sending)
        wait([dist.irecv(gradient, server) for gradient in gradients])
        return
    others = [node for node in range(size) if node != server]
    room = {node: [torch.empty_like(gradient) for gradient in gradients] for node in others}
    receiving = {node: [dist.irecv(part, node) for part in room[node]] for node in others}
    answers = []
    for number, gradient in enumerate(gradients):  # the first is averaged while the last is on its way
        for node in others:
            receiving[node][number].wait()
            gradient += room[node][number]
        gradient /= size
        answers += [dist.isend(gradient, node) for node in others]
    wait(answers)


def ring(gradients: list[torch.Tensor]) -> None:
    """Reduce-scatter, then all-gather, each node talking to its two neighbours only; chunk `c` ends at node `c - 1`."""
    rank, size = dist.get_rank(), dist.get_world_size()
    behind, ahead = (rank - 1) % size, (rank + 1) % size
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    chunks = list(torch.tensor_split(flat, size))
    room = torch.empty(max(map(len, chunks)))
    for step in range(size - 1):  # each chunk grows by one contribution per step
        going, coming = chunks[(rank - step) % size], chunks[(rank - step - 1) % size]
        sending, part = dist.isend(going, ahead), room[: len(coming)]
        dist.irecv(part, behind).wait()
        coming += part
        sending.wait()
    chunks[ahead] /= size
    for step in range(size - 1):  # each finished chunk goes around once
        going, coming = chunks[(rank + 1 - step) % size], chunks[(rank - step) % size]
        sending = dist.isend(going, ahead)
        dist.irecv(coming, behind).wait()
        sending.wait()
    averaged = flat.split([gradient.numel() for gradient in gradients])
    for gradient, part in zip(gradients, averaged, strict=True):
        gradient.copy_(part.view_as(gradient))


def wait(works: list) -> None:
    """Wait for all of them."""
    for work in works:
        work.wait()


def language_model(vocabulary: int, length: int) -> torch.nn.Module:
    """A model that maps (tokens, next tokens) to a loss."""
    try:
        from transformers import Qwen3Config, Qwen3ForCausalLM
    except ImportError:
        from ictp2p.demo.model import ByteTransformer, Shape

        return ByteTransformer(Shape(context=length, layers=2, width=64))
    shape = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "head_dim": 16}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": length}
    qwen = Qwen3ForCausalLM(Qwen3Config(vocab_size=vocabulary, **shape, **heads))

    class Loss(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = qwen

        def forward(self, tokens: torch.Tensor, following: torch.Tensor) -> torch.Tensor:
            logits = self.model(tokens).logits
            return torch.nn.functional.cross_entropy(logits.flatten(0, 1), following.flatten())

    return Loss()


def digest(model: torch.nn.Module) -> str:
    """A hash of all parameters' bits."""
    found = hashlib.sha256()
    for parameter in model.parameters():
        found.update(parameter.detach().numpy().tobytes())
    return found.hexdigest()


def main() -> None:
    """Train, and compare the parameters after every epoch."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--how", choices=("parameter_server", "ring"), default="ring")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--samples", type=int, default=24, help="of each node")
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--batch", type=int, default=8)
    options = parser.parse_args()
    average = {"parameter_server": parameter_server, "ring": ring}[options.how]

    dist.init_process_group("ictp2p")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = language_model(256, options.length)  # the same weights everywhere
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    # Synthetic text with something to learn: every sample counts upwards from a place and in steps of its own.
    chance = torch.Generator().manual_seed(rank)
    starts = torch.randint(256, (options.samples, 1), generator=chance)
    strides = torch.randint(1, 4, (options.samples, 1), generator=chance)
    samples = (starts + strides * torch.arange(options.length + 1)) % 256
    for epoch in range(options.epochs):
        for batch in samples.split(options.batch):
            loss = model(batch[:, :-1], batch[:, 1:])
            loss.backward()
            average([parameter.grad for parameter in model.parameters()])
            optimizer.step()
            optimizer.zero_grad()
        digests = [""] * dist.get_world_size()
        dist.all_gather_object(digests, digest(model))
        if len(set(digests)) > 1:
            raise SystemExit(f"node {rank}: parameters differ after epoch {epoch}: {digests}")
        print(
            f"node {rank}  epoch {epoch}  loss {loss.item():.4f}  parameters {digests[0][:16]} everywhere", flush=True
        )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
