"""One worker of the demo: an ordinary training loop with a peer in it, `python -m ictp2p.demo.worker ...`.

Everything that makes it distributed is `Peer(config)`, `DiLoCo(...)` and `peer.steps(...)`; the rest is a model, a
loader, an optimizer, and the reporting that a demonstration needs. The join token comes in the environment
(`ICTP2P_TOKEN`), never on the command line, where every user of the machine could read it.

**Ending together.** Digests can only be compared at one version, and workers pass a version at different times.
So a `stop` names a version in the future: each worker trains until exactly that version is committed, reports the
digest there, and stands still, but stays in the mesh, because another one may still want the state from it. Only
`exit` lets it go. A worker that hears of a version it has already passed says so, at the version it is at, and the
controller names a later one; standing workers then train on.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

import torch

import ictp2p
from ictp2p.demo import corpus, model
from ictp2p.demo.lines import Commands, Events, take_stdin
from ictp2p.errors import IctError

STEP_EVERY = 5
"""Inner steps between two `step` events."""

VALIDATION_WINDOWS = 128
"""Windows of held-out text behind each validation loss: 0.1 s, and a standard error of about 0.02."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one worker until it has drained, stopped or failed."""
    options = _parser().parse_args(argv)
    events = Events.take_stdout()
    torch.set_num_threads(1)
    try:
        train(options, events, take_stdin())
    except IctError as error:
        events.say("failed", error=type(error).__name__, text=str(error))
        return 1
    return 0


def train(options: argparse.Namespace, events: Events, commands: Commands) -> None:
    """Join the mesh and train in it."""
    peer = ictp2p.Peer(_config(options))
    peer.on_event(events)
    commands.on("drain", peer.drain)
    commands.start()
    training = Training(options, events, commands, peer)  # before joining: whoever has joined is waited for
    with peer:
        events.say("ready", peer=peer.id, cluster=options.cluster, address=str(peer.address), pid=os.getpid())
        if commands.wait()["do"] != "go":
            return
        training.run()


class Training:
    """The loop, and what it tells."""

    def __init__(self, options: argparse.Namespace, events: Events, commands: Commands, peer: ictp2p.Peer) -> None:
        self._options = options
        self._events = events
        self._commands = commands
        self._peer = peer
        text = corpus.load(options.shards)
        self._shape = model.Shape()
        self._shard = text.shards[options.shard]
        self._validation = text.validation
        torch.manual_seed(options.seed)  # every cluster starts from the same parameters
        self._model = model.ByteTransformer(self._shape)
        self._inner = torch.optim.AdamW(self._model.parameters(), lr=options.learning_rate)
        self._losses: list[float] = []
        self._version = -1
        self._stop_at: int | None = None
        self._leaving = False

    def run(self) -> None:
        """Train until drained, or until told to exit."""
        seed = (self._options.seed * 1000 + self._options.shard) * 1000 + self._options.worker
        loader = model.batches(self._shard, self._options.batch, self._shape.context, seed)
        with ictp2p.DiLoCo(self._peer, self._model, self._inner, sync_every=self._options.sync_every) as self._policy:
            self._say_version()
            for step, (x, following) in enumerate(self._peer.steps(loader), start=1):
                self._step(step, x, following)
                if self._policy.version != self._version:
                    self._say_version()
                self._obey()
                if self._leaving:
                    return
            self._events.say("drained", version=self._policy.version)

    def _step(self, step: int, x: torch.Tensor, following: torch.Tensor) -> None:
        loss = self._model(x, following)
        loss.backward()
        self._inner.step()
        self._inner.zero_grad()
        self._losses.append(loss.item())
        if step % STEP_EVERY == 0:
            self._events.say("step", step=step, loss=sum(self._losses) / len(self._losses))
            self._losses.clear()

    def _say_version(self) -> None:
        self._version = self._policy.version
        self._events.say("version", version=self._version, digest=self._policy.digest())
        if self._options.validate:
            self._events.say("validation", version=self._version, loss=self._validation_loss())

    def _obey(self) -> None:
        command = self._commands.take()
        while command is not None or self._due():
            if command is None:
                self._say_stopped()
                command = self._commands.wait()
            self._leaving = command["do"] == "exit"
            self._stop_at = command.get("version")
            command = self._commands.take()

    def _due(self) -> bool:
        return self._stop_at is not None and self._policy.version >= self._stop_at

    def _say_stopped(self) -> None:
        self._events.say(
            "stopped",
            version=self._policy.version,
            digest=self._policy.digest(),
            validation_loss=self._validation_loss(),
            stats=self._peer.stats(),
        )

    def _validation_loss(self) -> float:
        parameters = self._policy.global_parameters()
        return model.validation_loss(self._model, parameters, self._validation, self._shape.context, VALIDATION_WINDOWS)


def _config(options: argparse.Namespace) -> ictp2p.Config:
    return ictp2p.Config.local(
        cluster=options.cluster,
        token=os.environ["ICTP2P_TOKEN"],
        listen=options.listen,
        join=tuple(options.join),
        data_dir=options.data_dir,
        bulk_rate=options.bulk_rate,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="ictp2p.demo.worker", description="One worker process of the demo.")
    parser.add_argument("--cluster", required=True, help="name of the cluster this worker belongs to")
    parser.add_argument("--worker", type=int, default=0, help="number within the cluster; seeds its batches")
    parser.add_argument("--listen", default="127.0.0.1:0", help="address to listen on")
    parser.add_argument("--join", action="append", default=[], help="address of any peer of the mesh")
    parser.add_argument("--data-dir", help="folder for what must survive a crash")
    parser.add_argument("--bulk-rate", type=float, help="bytes per second of tensor traffic; unpaced if not given")
    parser.add_argument("--shards", type=int, default=4, help="pieces that the text is cut into")
    parser.add_argument("--shard", type=int, default=0, help="which piece this worker's cluster trains on")
    parser.add_argument("--sync-every", type=int, default=20, help="inner steps between two outer rounds")
    parser.add_argument("--batch", type=int, default=4, help="windows of text per inner step")
    parser.add_argument("--learning-rate", type=float, default=1e-3, help="of the inner optimizer, AdamW")
    parser.add_argument("--seed", type=int, default=0, help="of parameters and batches")
    parser.add_argument("--validate", action="store_true", help="measure the validation loss at every version")
    return parser


if __name__ == "__main__":
    sys.exit(main())
