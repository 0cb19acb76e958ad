"""Does it learn: a byte-level transformer on CPython's own text, under each policy, for equally many tokens.

    python benchmarks/learning.py --json docs/learning.json --plot docs/learning.svg
    python benchmarks/learning.py --steps 200 --seeds 1 --only "DiLoCo" "DiLoCo int8"

Four workers, each with a shard of its own (`ictp2p.demo.corpus`), take equally many inner steps on equally large
batches under every method; the single worker takes as many, on all of the text. What is compared is the validation loss
of the global parameters at the end. All begin from one model, pretrained by one worker, as in the paper of DiLoCo
(Douillard et al., 2023: 24,000 of 88,000 steps).

The policies, the rounds and the data plane are the product's own, four peers of them, in a simulated world
(`sim.training`): so a run is a function of its seed, and costs little more than the torch steps in it. Data parallel is
one cluster of four workers, whose gradients are averaged at every step (`sync.cluster.averaging`); elsewhere each
worker is a cluster. *Lost* contributions go to their round with no weight to speak of: three of ten phases of a
cluster's work, drawn at random, are in no average, and the cluster goes on from what the others made.
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
import json
import math
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from arguments import count, even, named, output, positive, whole

import ictp2p
from ictp2p.demo import corpus
from ictp2p.demo.model import Batch, ByteTransformer, Shape, batches, validation_loss
from ictp2p.sync.mesh import RoundRequest, RoundResult
from ictp2p.sync.optimizers.outer import Nesterov
from ictp2p.sync.values import LOOKS_ON
from sim import World
from sim.training import Training

WORKERS = 4
STEP = 0.005
"""Virtual seconds of an inner step: what it is does not matter here."""
WINDOWS = 768
"""Windows of text that the last validation loss is over; the curve's are fewer."""
CURVE_WINDOWS = 96


@dataclass(frozen=True, slots=True)
class Method:
    """One line of the table."""

    name: str
    policy: Callable[..., Any] = ictp2p.DiLoCo
    options: dict[str, Any] = field(default_factory=dict)
    clusters: int = WORKERS
    workers: int = 1
    lost: float = 0.0
    """Probability that what a cluster brings to a round is lost."""
    against: tuple[str, float] | None = None
    """What its loss is compared with, and by how much it may be above."""


def methods(every: int) -> list[Method]:
    """The lines of the table, in the order in which their losses should rise."""
    return [
        Method("data parallel", ictp2p.LocalSGD, {"sync_every": every}, clusters=1, workers=WORKERS),
        Method("DiLoCo", options={"sync_every": every}, against=("data parallel", 0.03)),
        Method("DiLoCo int8", options={"sync_every": every, "codec": "int8"}, against=("DiLoCo", 0.005)),
        Method("DiLoCo e3m0", options={"sync_every": every, "codec": "e3m0"}, against=("DiLoCo", 0.005)),
        Method("DiLoCo, 30 % lost", options={"sync_every": every}, lost=0.3, against=("DiLoCo", 0.01)),
        Method("LocalSGD", ictp2p.LocalSGD, {"sync_every": every}),
        Method("single worker", ictp2p.LocalSGD, {"sync_every": every}, clusters=1),
    ]


ORDER = (("data parallel", "DiLoCo", False), ("DiLoCo", "LocalSGD", True), ("LocalSGD", "single worker", True))
"""Pairs of which the first should have the lower loss; whether strictly."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What all methods have in common."""

    steps: int
    every: int
    batch: int
    rate: float
    outer_rate: float
    warmup: int
    shape: Shape
    pretraining: int = 0
    """Inner steps that one worker has taken before."""


class Lossy:
    """A mesh that loses some of what this cluster brings."""

    def __init__(self, mesh: Training, probability: float, seed: int) -> None:
        self._mesh, self._probability = mesh, probability
        self._chance = random.Random(seed)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._mesh, name)

    def outer_round(self, request: RoundRequest) -> RoundResult:
        """Bring it, or next to nothing of it."""
        lost = self._chance.random() < self._probability
        return self._mesh.outer_round(dataclasses.replace(request, weight=LOOKS_ON) if lost else request)


def pretrained(settings: Settings, seed: int, text: corpus.Corpus) -> ByteTransformer:
    """The model that everybody begins from: one worker's, on all of the text, at the full learning rate."""
    torch.manual_seed(seed)
    model = ByteTransformer(settings.shape)
    inner = make_inner(model, settings)
    data = batches(b"\n".join(text.shards), settings.batch, settings.shape.context, seed=1000 * seed + 999)
    for step in range(settings.pretraining):
        for group in inner.param_groups:
            group["lr"] = settings.rate * min(1.0, (step + 1) / settings.warmup)
        learn_step(model, inner, next(data))
    return model


def make_inner(model: torch.nn.Module, settings: Settings) -> torch.optim.Optimizer:
    """AdamW, fused into one operation."""
    return torch.optim.AdamW(model.parameters(), lr=settings.rate, betas=(0.9, 0.99), weight_decay=0.1, fused=True)


def learn_step(
    model: torch.nn.Module, inner: torch.optim.Optimizer, batch: Batch, before: Callable[[], object] = lambda: None
) -> None:
    """One inner step; `before` is called when the gradients are there."""
    loss = model(*batch)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    before()
    inner.step()
    inner.zero_grad()


def run(method: Method, settings: Settings, seed: int, text: corpus.Corpus, start: ByteTransformer) -> dict[str, Any]:
    """Train under one method from one seed; give its losses."""
    began = time.process_time()

    def program(training: Training) -> dict[str, Any]:
        return learn(training, method, settings, seed, text, copy.deepcopy(start))

    with World(seed=seed, profile="lan", audit=False) as world:
        world.links(delay=0.001, bandwidth=125e6)
        for number in range(method.clusters):
            world.cluster("abcd"[number], workers=method.workers, program=program)
        found = world.train(within=3600.0)
    first = found["a/0"]
    assert len({each["digest"] for each in found.values()}) == 1, "the global parameters differ"
    return {**first, "method": method.name, "seed": seed, "cpu_seconds": time.process_time() - began}


def learn(
    training: Training, method: Method, settings: Settings, seed: int, text: corpus.Corpus, model: ByteTransformer
) -> dict[str, Any]:
    """Be one worker."""
    number = "abcd".index(training.host.cluster) + int(training.host.name.split("/")[1])
    inner = make_inner(model, settings)
    schedule = torch.optim.lr_scheduler.LambdaLR(inner, lambda step: share(step, settings.steps, settings.warmup))
    alone = method.clusters * method.workers == 1
    shard = b"\n".join(text.shards) if alone else text.shards[number]
    data = batches(shard, settings.batch, settings.shape.context, seed=1000 * seed + number)
    mesh = Lossy(training, method.lost, 1000 * seed + number) if method.lost else training
    options = dict(method.options)
    if method.policy is ictp2p.DiLoCo:
        options["outer"] = lambda parameters: Nesterov(parameters, lr=settings.outer_rate)
    curve: list[tuple[int, float]] = []
    with method.policy(mesh, model, inner, carry=[schedule], **options) as policy:
        training.meet()
        version = policy.version
        for step in range(1, settings.steps + 1):
            learn_step(model, inner, next(data), lambda: training.compute(STEP))
            schedule.step()
            if policy.version != version and training.host.name == "a/0":
                version = policy.version
                curve.append((step, _validate(model, policy, text, settings, CURVE_WINDOWS)))
        last = _validate(model, policy, text, settings, WINDOWS) if training.host.name == "a/0" else math.nan
        return {"loss": last, "curve": curve, "digest": policy.digest(), "rounds": policy.version - 1}


def share(step: int, steps: int, warmup: int) -> float:
    """The learning rate's share of its peak: a warm-up, then a cosine down to a twentieth."""
    if step < warmup:
        return (step + 1) / warmup
    done = (step - warmup) / max(1, steps - warmup)
    return 0.05 + 0.475 * (1.0 + math.cos(math.pi * min(1.0, done)))


def _validate(model: torch.nn.Module, policy: Any, text: corpus.Corpus, settings: Settings, windows: int) -> float:
    return validation_loss(model, policy.global_parameters(), text.validation, settings.shape.context, windows)


def verdicts(rows: list[dict[str, Any]], chosen: list[Method]) -> list[dict[str, Any]]:
    """Say of each inequality whether it was seen, over all seeds and in the mean."""
    losses: dict[str, dict[int, float]] = {}
    for row in rows:
        losses.setdefault(row["method"], {})[row["seed"]] = row["loss"]

    def compare(low: str, high: str, most: float, *, strictly: bool = False) -> dict[str, Any]:
        seeds = sorted(set(losses[low]) & set(losses[high]))
        gaps = [losses[high][seed] / losses[low][seed] - 1.0 for seed in seeds]
        mean = statistics.fmean(gaps)
        return {"gaps": gaps, "mean": mean, "holds": mean > 0.0 if strictly else mean <= most}

    found = []
    for low, high, strictly in ORDER:
        if low in losses and high in losses:
            sign = "<" if strictly else "<="
            gap = compare(low, high, math.inf, strictly=True)
            holds = gap["mean"] > 0.0 if strictly else gap["mean"] >= 0.0
            found.append({"what": f"{low} {sign} {high}", **gap, "holds": holds})
    for method in chosen:
        if method.against is not None and method.name in losses and method.against[0] in losses:
            reference, most = method.against
            what = f"{method.name} at most {most:.1%} above {reference}"
            found.append({"what": what, **compare(reference, method.name, most)})
    return found


def show(rows: list[dict[str, Any]], chosen: list[Method]) -> None:
    """Print the table and what it says."""
    for method in chosen:
        losses = [row["loss"] for row in rows if row["method"] == method.name]
        if losses:
            each = " ".join(f"{loss:.4f}" for loss in losses)
            print(f"{method.name:20} {statistics.fmean(losses):.4f}  ({each})")
    for found in verdicts(rows, chosen):
        gaps = " ".join(f"{gap:+.2%}" for gap in found["gaps"])
        print(f"{'yes' if found['holds'] else 'NO':4} {found['what']}: {found['mean']:+.2%} ({gaps})")


def plot(rows: list[dict[str, Any]], chosen: list[Method], file: Path) -> None:
    """Draw the validation loss of the global parameters against inner steps, in the mean over the seeds."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4.2))
    for method in chosen:
        curves = [row["curve"] for row in rows if row["method"] == method.name]
        if curves and len(curves[0]) > 1:
            steps = [step for step, _ in curves[0]]
            losses = [statistics.fmean(curve[n][1] for curve in curves) for n in range(len(steps))]
            axes.plot(steps, losses, label=method.name, linewidth=1.2)
        elif curves:
            last = statistics.fmean(curve[-1][1] for curve in curves)
            axes.axhline(last, label=f"{method.name} (at the end)", linestyle=":", linewidth=1.0, color="black")
    axes.set(xlabel="inner steps per worker", ylabel="validation loss, nats per byte")
    axes.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(file)


def main() -> None:
    """Train under every method from every seed; print, and perhaps save, the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", **named(method.name for method in methods(1)))
    parser.add_argument("--seeds", type=count, default=3, help="how many, from 1 on")
    parser.add_argument("--steps", type=count, default=600, help="inner steps of each worker")
    parser.add_argument("--every", type=count, default=50, help="inner steps between outer rounds (H)")
    parser.add_argument("--batch", type=count, default=16, help="windows per inner step of a worker")
    parser.add_argument("--rate", type=positive, default=2e-3, help="inner learning rate (AdamW)")
    parser.add_argument("--outer-rate", type=positive, default=0.7, help="outer learning rate (Nesterov, momentum 0.9)")
    parser.add_argument("--warmup", type=count, default=20, help="inner steps in which the learning rate rises")
    parser.add_argument("--width", type=even, default=32, help="of the model, which has one layer of two heads")
    parser.add_argument("--pretraining", type=whole(0), default=600, help="inner steps that one worker takes before")
    parser.add_argument("--json", type=output, help="file to write everything to, after every run")
    parser.add_argument("--plot", type=output, help="file to draw the curves in")
    options = parser.parse_args()
    torch.set_num_threads(1)
    shape = Shape(context=32, layers=1, heads=2, width=options.width)
    settings = Settings(
        options.steps,
        options.every,
        options.batch,
        options.rate,
        options.outer_rate,
        options.warmup,
        shape,
        options.pretraining,
    )
    chosen = [m for m in methods(options.every) if not options.only or m.name in options.only]
    text = corpus.load(WORKERS)
    rows: list[dict[str, Any]] = []
    for seed in range(1, options.seeds + 1):
        start = pretrained(settings, seed, text)
        for method in chosen:
            row = run(method, settings, seed, text, start)
            rows.append(row)
            print(f"seed {seed} {method.name}: {row['loss']:.4f} ({row['cpu_seconds']:.0f} CPU s)", flush=True)
            if options.json:
                document = {"settings": dataclasses.asdict(settings), "rows": rows, "verdicts": verdicts(rows, chosen)}
                options.json.write_text(json.dumps(document, indent=1) + "\n")
    show(rows, chosen)
    if options.plot:
        plot(rows, chosen, options.plot)


if __name__ == "__main__":
    main()
