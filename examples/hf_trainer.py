"""A Hugging Face `Trainer` in each of two clusters; what makes them train together is the callback.

In two terminals, with the same ICTP2P_TOKEN in the environment (and `pip install 'ictp2p[hf]'`):

    python examples/hf_trainer.py --cluster oslo  --listen 127.0.0.1:7001
    python examples/hf_trainer.py --cluster tokyo --join 127.0.0.1:7001

Ctrl-C, once, ends one of them after its next round; twice: at once. The other goes on.

The model is a small GPT-2 with random weights; it reads Python's own help texts, byte by byte. Nothing is downloaded.
"""

import argparse
import os
import pydoc_data.topics
import signal
import sys
import tempfile

if __name__ == "__main__":  # the libraries take seconds to load, and may lose an interrupt that is an exception
    signal.signal(signal.SIGINT, lambda *_: os._exit(130))

try:
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments
except ModuleNotFoundError as error:
    sys.exit(f"{error}: pip install 'ictp2p[hf]'")
import torch

import ictp2p
from ictp2p.errors import IctError
from ictp2p.integrations.huggingface import PolicyCallback

CONTEXT = 32


class Windows(torch.utils.data.Dataset):
    """Windows of the text; a cluster begins elsewhere than the others."""

    def __init__(self, begin: int, count: int) -> None:
        text = "".join(pydoc_data.topics.topics.values()).encode()
        self.text = torch.frombuffer(bytearray(text), dtype=torch.uint8).long()
        self.begin, self.count = begin, count

    def __len__(self) -> int:
        """How many there are."""
        return self.count

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        """One of them, as inputs and labels."""
        at = (self.begin + index * CONTEXT) % (len(self.text) - CONTEXT)
        window = self.text[at : at + CONTEXT]
        return {"input_ids": window, "labels": window}


def main() -> None:
    """Train for --steps."""
    parser = argparse.ArgumentParser(description="Train a small GPT-2 together with other clusters.")
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
    model = GPT2LMHeadModel(
        GPT2Config(vocab_size=256, n_positions=CONTEXT, n_embd=32, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0)
    )
    config = ictp2p.Config.local(cluster=options.cluster, token=token, listen=options.listen, join=tuple(options.join))
    with ictp2p.Peer(config) as peer, tempfile.TemporaryDirectory(prefix="trainer-") as folder:
        drain_on_interrupt(peer)
        print(f"{peer.cluster} listens on {peer.address}, and waits for another cluster", flush=True)
        peer.gather(2, timeout=60.0)  # so that both begin together; clusters may come and go at any time
        arguments = TrainingArguments(
            output_dir=folder,
            max_steps=options.steps,
            per_device_train_batch_size=8,
            learning_rate=3e-3,
            include_num_input_tokens_seen=True,
            logging_steps=10,
            save_strategy="no",
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
            seed=len(options.cluster),
        )
        together = PolicyCallback(peer, ictp2p.DiLoCo, sync_every=10)
        data = Windows(begin=0 if options.join else 100_000, count=min(8 * options.steps, 4096))
        trainer = Trainer(model, arguments, train_dataset=data, callbacks=[together])
        try:
            trainer.train()
        finally:
            together.leave()  # the trainer does not say that an error has broken it off, and the others would wait
        policy = together.policy
        losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
        print(f"losses {' '.join(str(loss) for loss in losses)}", flush=True)
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
