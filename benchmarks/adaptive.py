"""Adaptive H against every fixed one, while the link becomes ten times slower: validation loss after equal time.

    python benchmarks/adaptive.py --json docs/adaptive.json --plot docs/adaptive.svg

Two clusters train the byte-level transformer of `learning.py` with DiLoCo, the product's own, in a simulated world: an
inner step takes `STEP` virtual seconds, a round as long as its bytes need on the link, which after half of the time is
down to a tenth. Everybody has equally much time, not equally many steps. What counts is the validation loss of the
global parameters when the time is up: between the last round before and the first one after, in proportion to the time.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import learning
import torch
from arguments import between, count, fraction, output, positive, whole
from learning import Settings

import ictp2p
from ictp2p.demo import corpus
from ictp2p.demo.model import ByteTransformer, Shape, batches, validation_loss
from ictp2p.sync.optimizers.outer import Nesterov
from sim import World
from sim.faults import SetBandwidth
from sim.training import NEWS, Training

CLUSTERS = "ab"
STEP = 0.05
"""Virtual seconds of an inner step."""
REFERENCE = 50
"""Inner steps of the phase that the adaptive one begins with."""
FIXED = (5, 10, 20, 50, 100, 200, 500)
ADAPTIVE = "adaptive"
WINDOWS = 256
"""Windows of text that a validation loss is over."""


class Finish:
    """The version of the state with which all clusters end: the first one after the time is up."""

    version = 0


@dataclass(frozen=True, slots=True)
class Course:
    """What all runs from one seed have in common."""

    budget: float
    """Virtual seconds of training."""
    round_seconds: float
    """Virtual seconds of a round before the link becomes slower."""
    settings: Settings
    seed: int
    text: corpus.Corpus
    start: ByteTransformer


def run(name: str, course: Course, adaptive: ictp2p.AdaptivePace) -> dict[str, Any]:
    """Train with one H, or with the adaptive one."""
    began, finish, seed = time.process_time(), Finish(), course.seed

    def program(training: Training) -> dict[str, Any]:
        return learn(training, copy.copy(adaptive) if name == ADAPTIVE else int(name), course, finish)

    with World(seed=seed, profile="lan", audit=False) as world:
        size = sum(p.numel() for p in course.start.parameters()) * 4
        rate = size / course.round_seconds  # two clusters: as much as the model goes each way
        world.links(delay=0.005, bandwidth=rate)
        for cluster in CLUSTERS:
            world.cluster(cluster, workers=1, program=program)
        world.run_until(lambda: all(h.training is not None and h.training.met for h in world.every_host()), 60.0)
        world.after(NEWS + course.budget / 2, SetBandwidth("*", "*", rate / 10))
        found = world.train(within=100.0 * course.budget)
    return {**found["a/0"], "name": name, "seed": seed, "cpu_seconds": time.process_time() - began}


def learn(training: Training, pace: int | ictp2p.AdaptivePace, course: Course, finish: Finish) -> dict[str, Any]:
    """Be one worker."""
    number, budget, settings = CLUSTERS.index(training.host.cluster), course.budget, course.settings
    model = copy.deepcopy(course.start)
    inner = learning.make_inner(model, settings)
    shard, context = course.text.shards[number], settings.shape.context
    data = batches(shard, settings.batch, context, seed=1000 * course.seed + number)
    curve: list[tuple[float, float, int]] = []

    def validate(seconds: float) -> None:
        loss = validation_loss(model, policy.global_parameters(), course.text.validation, context, WINDOWS)
        curve.append((seconds, loss, policy.sync_every))

    with ictp2p.DiLoCo(training, model, inner, lambda p: Nesterov(p, lr=settings.outer_rate), pace) as policy:
        training.meet()
        began, version, steps = training.clock(), policy.version, 0
        if number == 0:
            validate(0.0)
        while not 0 < finish.version <= policy.version:
            elapsed = training.clock() - began
            for group in inner.param_groups:
                group["lr"] = settings.rate * learning.share(int(1000 * elapsed / budget), 1000, settings.warmup)
            learning.learn_step(model, inner, next(data), lambda: training.compute(STEP))
            elapsed = training.clock() - began
            steps += elapsed <= budget
            if number == 0 and policy.version != version:
                version = policy.version
                validate(elapsed)
            if number == 0 and elapsed > budget and not finish.version:
                finish.version = policy.version + (curve[-1][0] <= budget)
        return {"loss": at(curve, budget) if number == 0 else None, "curve": curve, "steps": steps}


def at(curve: list[tuple[float, float, int]], seconds: float) -> float:
    """The loss at a time between two rounds."""
    (before, high, _), (after, low, _) = curve[-2:]
    assert before <= seconds <= after, (before, seconds, after)
    return high + (low - high) * (seconds - before) / (after - before)


def summarize(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """How far the adaptive one is from the best fixed one, in the mean over the seeds."""
    means = {name: statistics.fmean(r["loss"] for r in rows if r["name"] == name) for name in {r["name"] for r in rows}}
    fixed = {name: loss for name, loss in means.items() if name != ADAPTIVE}
    best = min(fixed, key=fixed.__getitem__)
    gap = means[ADAPTIVE] / fixed[best] - 1.0
    gaps = {seed: _gap([r for r in rows if r["seed"] == seed]) for seed in {r["seed"] for r in rows}}
    return {"means": means, "best_fixed": best, "gap": gap, "gaps": gaps, "holds": gap <= 0.01}


def _gap(rows: list[dict[str, Any]]) -> float:
    """How far the adaptive one is from the best fixed one of its own seed."""
    losses = {row["name"]: float(row["loss"]) for row in rows}
    return losses.pop(ADAPTIVE) / min(losses.values()) - 1.0


def plot(rows: list[dict[str, Any]], budget: float, file: Path) -> None:
    """Draw loss against time for the first seed, and the adaptive H."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (above, below) = pyplot.subplots(2, 1, figsize=(7, 5.5), sharex=True, height_ratios=(3, 1))
    for row in (row for row in rows if row["seed"] == rows[0]["seed"] and row["curve"]):
        adaptive = row["name"] == ADAPTIVE
        times, losses, lengths = zip(*row["curve"], strict=True)
        style = {"color": "black", "linewidth": 2.0} if adaptive else {"linewidth": 1.0}
        above.plot(times, losses, label="adaptive" if adaptive else f"H = {row['name']}", **style)
        if adaptive:
            below.step(times, lengths, color="black", where="post")
    for axes in (above, below):
        axes.axvline(budget / 2, linestyle=":", color="gray", linewidth=1.0)
    above.set(ylabel="validation loss, nats per byte")
    above.legend(fontsize=8)
    below.set(xlabel="virtual seconds (at the dotted line the link becomes ten times slower)", ylabel="adaptive H")
    below.set_yscale("log")
    figure.tight_layout()
    figure.savefig(file)


def main() -> None:
    """Train with every H from every seed; print, and perhaps save, the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=count, default=3, help="how many, from 1 on")
    parser.add_argument("--budget", type=between(1.0, 1e6), default=60.0, help="virtual seconds that training has")
    parser.add_argument("--round", type=positive, default=0.2, help="virtual seconds of a round before the change")
    parser.add_argument("--rate", type=positive, default=2e-3, help="inner learning rate (AdamW)")
    parser.add_argument("--outer-rate", type=positive, default=0.7, help="outer learning rate, for phases of 50 steps")
    parser.add_argument("--utilization", type=fraction, default=0.95, help="what the adaptive one aims for")
    parser.add_argument("--most", type=whole(REFERENCE), default=2000, help="the longest phase it may choose")
    parser.add_argument("--json", type=output, help="file to write everything to, after every run")
    parser.add_argument("--plot", type=output, help="file to draw the curves in")
    options = parser.parse_args()
    torch.set_num_threads(1)
    shape = Shape(context=32, layers=1, heads=2, width=32)
    settings = Settings(1000, REFERENCE, 16, options.rate, options.outer_rate, 20, shape, 600)
    text = corpus.load(learning.WORKERS)
    adaptive = ictp2p.AdaptivePace(REFERENCE, utilization=options.utilization, most=options.most)
    rows: list[dict[str, Any]] = []
    for seed in range(1, options.seeds + 1):
        start = learning.pretrained(settings, seed, text)
        course = Course(options.budget, options.round, settings, seed, text, start)
        for name in (ADAPTIVE, *map(str, FIXED)):
            row = run(name, course, adaptive)
            rows.append(row)
            rounds, cpu = len(row["curve"]) - 1, row["cpu_seconds"]
            what = f"loss {row['loss']:.4f} after {row['steps']} steps and {rounds} rounds"
            print(f"seed {seed} {name:>8}: {what} ({cpu:.0f} CPU s)", flush=True)
            if options.json:
                options.json.write_text(json.dumps({"rows": rows}, indent=1) + "\n")
    found = summarize(rows)
    apart = ", ".join(f"{gap:+.2%}" for gap in found["gaps"].values())
    print(f"adaptive against the best fixed (H = {found['best_fixed']}): {found['gap']:+.2%}; by seed {apart}")
    if options.json:
        options.json.write_text(json.dumps({"rows": rows, "summary": found}, indent=1) + "\n")
    if options.plot:
        plot(rows, options.budget, options.plot)


if __name__ == "__main__":
    main()
