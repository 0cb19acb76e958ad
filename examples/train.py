"""A training loop of one's own with a peer in it. Start it in several terminals; see the README.

    export ICTP2P_TOKEN=$(ictp2p token)
    python examples/train.py --data-dir runs/oslo   --cluster oslo   --listen 127.0.0.1:7001
    python examples/train.py --data-dir runs/tokyo  --cluster tokyo  --join 127.0.0.1:7001
    python examples/train.py --data-dir runs/zurich --cluster zurich --join 127.0.0.1:7001

Each terminal is a cluster of one worker; start two with the same --cluster and they are one cluster of two. Stop
one with Ctrl-C (or SIGTERM, as schedulers do), once: it finishes its round, says goodbye and leaves; twice: it just
ends, and the others go on. After every round the agreed state is written to the folder of --data-dir, for the day on
which all have ended: the same lines then go on from there.
"""

import argparse
import contextlib
import os
import pydoc_data.topics
import signal
import sys
import tempfile
from pathlib import Path

if __name__ == "__main__":  # the libraries take seconds to load, and may lose an interrupt that is an exception
    signal.signal(signal.SIGINT, lambda *_: os._exit(130))

import ictp2p
from ictp2p.errors import IctError


def asked() -> argparse.Namespace:
    """The options; which of them is wrong is said before anything takes time."""
    parser = argparse.ArgumentParser(description="Train a byte model together with other clusters.")
    parser.add_argument("--cluster", required=True, help="name of this worker's cluster")
    parser.add_argument("--listen", default="127.0.0.1:0", help="host:port; port 0 lets the system choose")
    parser.add_argument("--data-dir", help="what must survive its end; by default for this run only")
    parser.add_argument("--join", action="append", default=[], help="host:port of any peer; none founds a mesh")
    parser.add_argument("--token", default=os.environ.get("ICTP2P_TOKEN"), help="the mesh's, or ICTP2P_TOKEN")
    parser.add_argument("--steps", type=int, default=0, help="inner steps before it drains; 0: until Ctrl-C")
    options = parser.parse_args()
    if not options.token:
        parser.error("give the mesh's --token, or ICTP2P_TOKEN; `ictp2p token` makes one")
    if options.steps < 0:
        parser.error(f"--steps {options.steps} is less than 0")
    try:
        configured(options, options.data_dir)
    except IctError as error:
        sys.exit(in_one_line(error))
    return options


def configured(options: argparse.Namespace, data_dir: str | None) -> ictp2p.Config:
    """The configuration of this worker's peer."""
    return ictp2p.Config.local(
        cluster=options.cluster,
        token=options.token,
        listen=options.listen,
        join=tuple(options.join),
        data_dir=data_dir,
    )


def in_one_line(error: IctError) -> str:
    """Each says what is wrong, and with which value."""
    return f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    OPTIONS = asked()

import torch  # noqa: E402 - it takes seconds, and what was asked wrongly needs none of it
from torch import nn  # noqa: E402

CONTEXT = 32


class NextByte(nn.Module):
    """Guesses the next byte from the last one and a recurrent memory of those before it."""

    def __init__(self, width: int = 96) -> None:
        super().__init__()
        self.byte = nn.Embedding(256, width)
        self.memory = nn.GRU(width, width, batch_first=True)
        self.guess = nn.Linear(width, 256)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        """Logits of the byte after each byte of `text`, (batch, context)."""
        return self.guess(self.memory(self.byte(text))[0])


def batches(size: int, seed: int):
    """Random windows of Python's own help texts, for ever."""
    text = "".join(pydoc_data.topics.topics.values()).encode()
    data = torch.frombuffer(bytearray(text), dtype=torch.uint8).long()
    chance = torch.Generator().manual_seed(seed)
    while True:
        starts = torch.randint(len(data) - CONTEXT, (size, 1), generator=chance)
        windows = data[starts + torch.arange(CONTEXT + 1)]
        yield windows[:, :-1], windows[:, 1:]


def main(options: argparse.Namespace) -> None:
    """Train until Ctrl-C, or for --steps."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = NextByte()
    inner = torch.optim.AdamW(model.parameters(), lr=2e-3)
    with folder(options.data_dir) as data_dir:
        train(configured(options, data_dir), model, inner, options.steps)


def folder(given: str | None):
    """The folder that was given, or one that ends with this run."""
    return tempfile.TemporaryDirectory(prefix="ictp2p-") if given is None else contextlib.nullcontext(given)


def train(config: ictp2p.Config, model: NextByte, inner: torch.optim.Optimizer, steps: int) -> None:
    """An ordinary loop: the peer is in the two lines of `with` and `for`."""
    file = Path(str(config.data_dir), "checkpoint.safetensors")
    with ictp2p.Peer(config) as peer, begun(ictp2p.DiLoCo(peer, model, inner, sync_every=50), file) as policy:
        print(f"{config.cluster} listens on {peer.address}, version {policy.version}", flush=True)
        drain_on_interrupt(peer)
        saved = 0
        for step, (text, following) in enumerate(peer.steps(batches(16, seed=os.getpid())), start=1):
            loss = nn.functional.cross_entropy(model(text).flatten(0, 1), following.flatten())
            loss.backward()
            inner.step()
            inner.zero_grad()
            if policy.version > saved:
                saved = policy.version
                policy.save(file)
            if step % 50 == 0:
                print(f"step {step}  version {policy.version}  loss {loss.item():.3f}", flush=True)
            if step == steps:
                peer.drain()


def begun(policy: ictp2p.DiLoCo, file: Path) -> ictp2p.DiLoCo:
    """The policy, from the checkpoint if there is one; the mesh still takes the newest state that somebody has."""
    if file.exists():
        policy.load(file)
        print(f"{file} is there to go on from", flush=True)
    return policy


def drain_on_interrupt(peer: ictp2p.Peer) -> None:
    """Leave gracefully on the first Ctrl-C or SIGTERM, at once on the second."""
    both = (signal.SIGINT, signal.SIGTERM)

    def drain(*_: object) -> None:
        for number in both:
            signal.signal(number, lambda *_: os._exit(130))  # at once: an exception would have the peer say goodbye
        print("draining; Ctrl-C again to end at once", flush=True)
        peer.drain()

    for number in both:
        signal.signal(number, drain)


if __name__ == "__main__":
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        main(OPTIONS)
    except IctError as error:
        sys.exit(in_one_line(error))
    except KeyboardInterrupt:  # the second Ctrl-C, or one while it was still joining
        sys.exit(130)
