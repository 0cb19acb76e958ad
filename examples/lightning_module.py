"""A Lightning `Trainer` in each of two clusters; what makes them train together is the callback.

In two terminals, with the same ICTP2P_TOKEN in the environment (and `pip install 'ictp2p[lightning]'`):

    python examples/lightning_module.py --cluster oslo  --listen 127.0.0.1:7001
    python examples/lightning_module.py --cluster tokyo --join 127.0.0.1:7001

Ctrl-C, once, ends one of them after its next round; twice: at once. The other goes on.
"""

import argparse
import os
import signal
import sys

if __name__ == "__main__":  # the libraries take seconds to load, and may lose an interrupt that is an exception
    signal.signal(signal.SIGINT, lambda *_: os._exit(130))

try:
    import lightning
except ModuleNotFoundError as error:
    sys.exit(f"{error}: pip install 'ictp2p[lightning]'")
import torch

import ictp2p
from ictp2p.errors import IctError
from ictp2p.integrations.lightning import PolicyCallback


class Regression(lightning.LightningModule):
    """A small network after the values of another one."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
        self.losses: list[float] = []

    def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
        """Mean squared error."""
        inputs, values = batch
        loss = (self.layers(inputs) - values).square().mean()
        self.losses.append(loss.item())
        if len(self.losses) % 10 == 0:
            print(f"step {len(self.losses)}  loss {loss.item():.4f}", flush=True)
        return loss

    def configure_optimizers(self) -> tuple[list[torch.optim.Optimizer], list[torch.optim.lr_scheduler.LRScheduler]]:
        """AdamW with a schedule."""
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.01)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 20, 0.5)]


def batches(count: int, seed: int) -> torch.utils.data.DataLoader:
    """Inputs of its own for every cluster, and the values that all are after."""
    chance, truth = torch.Generator().manual_seed(seed), torch.Generator().manual_seed(99)
    inputs = torch.randn(16 * count, 8, generator=chance)
    values = (inputs @ torch.randn(8, 1, generator=truth)).tanh()
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(inputs, values), batch_size=16)


def main() -> None:
    """Train for --steps."""
    parser = argparse.ArgumentParser(description="Train a small network together with other clusters.")
    parser.add_argument("--cluster", required=True)
    parser.add_argument("--listen", default="127.0.0.1:0")
    parser.add_argument("--join", action="append", default=[])
    parser.add_argument("--steps", type=int, default=40)
    options = parser.parse_args()
    if not (token := os.environ.get("ICTP2P_TOKEN")):
        parser.error("give the mesh's token in ICTP2P_TOKEN; `ictp2p token` makes one")
    if options.steps < 1:
        parser.error(f"--steps {options.steps} is less than 1")

    torch.set_num_threads(1)  # two of these on one machine would wait for each other's threads
    torch.manual_seed(0)  # for who founds the mesh; the others get its weights
    module = Regression()
    config = ictp2p.Config.local(cluster=options.cluster, token=token, listen=options.listen, join=tuple(options.join))
    with ictp2p.Peer(config) as peer:
        drain_on_interrupt(peer)
        print(f"{peer.cluster} listens on {peer.address}, and waits for another cluster", flush=True)
        peer.gather(2, timeout=60.0)  # so that both begin together; clusters may come and go at any time
        together = PolicyCallback(peer, ictp2p.DiLoCo, sync_every=10)
        trainer = lightning.Trainer(
            max_steps=options.steps,
            accelerator="cpu",
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            callbacks=[together],
        )
        trainer.fit(module, batches(min(options.steps, 256), seed=len(options.cluster)))
        policy, losses = together.policy, module.losses
        print(f"losses {sum(losses[:5]) / 5:.4f} {sum(losses[-5:]) / 5:.4f}", flush=True)
        print(f"weight {policy.weight}  version {policy.version}  digest {policy.digest()}", flush=True)


def drain_on_interrupt(peer: ictp2p.Peer) -> None:
    """Leave gracefully on the first Ctrl-C, at once on the second."""

    def drain(*_: object) -> None:
        signal.signal(signal.SIGINT, lambda *_: os._exit(130))  # at once: an exception would have the peer say goodbye
        print("draining; Ctrl-C again to end at once", flush=True)
        peer.drain()

    signal.signal(signal.SIGINT, drain)


if __name__ == "__main__":
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        main()
    except IctError as error:  # each says in one line what is wrong, and with which value
        sys.exit(f"{type(error).__name__}: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
