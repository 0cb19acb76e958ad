"""Lines that change: how long after it has a mesh the plan that is right for them, and what does the way there cost?

    python benchmarks/weather.py --seed 1 --spells 12 --json weather.json

Clusters in network namespaces of their own call an all-reduce again and again, and know of the lines what they measure.
The weather changes while a call is under way: the line of a cluster becomes slower or as fast as it was, a pair gets a
narrow line of its own or is cut, ways become longer, packets are lost, all of them or large ones, a cluster is silent
for some seconds. Then it stays for `--calls` calls, with `--rest` seconds between two. Of each it is told, over the
certified bound of the lines as they are by then, what the plan was thought to take, what the busiest line needs for its
bytes in truth (infinite for a plan over a line that is cut), and what the call took, agreement included; of the call in
which they changed, in brackets, what it took over the larger one of the two bounds.

Every result is checked: the same bytes everywhere, and the sum of whoever took part. Who misses a call is counted:
nobody should, but for one that was silent itself. Needs root, on Linux.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import random
import signal
import statistics
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pattern
import torch
from arguments import count, megabytes, output, seconds, whole
from emulator import PAYLOAD, Emulator, enter, require_root
from heterogeneous import fluid

import ictp2p
from ictp2p.collectives import plan as plans
from ictp2p.collectives.planning import planner
from ictp2p.collectives.planning.planner import LinkEstimate, PlanRequest
from ictp2p.machine import Notice
from ictp2p.sync.agreement.chain import Decided
from ictp2p.sync.values import Open
from ictp2p.types import PeerId

TOKEN = "benchmark-of-changing-lines"
PORT = 7460
KINDS = ("slower", "asymmetric", "pair", "cut", "longer", "loss", "silence")
ODD = ("swallow", "jitter", "disorder", "police", "deep", "twice", "forget")
"""Kinds that are drawn only if they are asked for."""
TUNNEL = 1400
"""Bytes that a packet may have where large ones are swallowed."""
QUEUE = 100.0
"""Milliseconds of its own rate that a line can queue."""
BUCKET = 250_000
"""Bytes that a policer lets pass at once."""
PATIENCE = 300.0
"""Seconds that a call may take before the run is given up."""


@dataclass(frozen=True, slots=True)
class Lines:
    """The network as it is. Mbit/s, milliseconds one way, chance of a packet's loss."""

    up: tuple[float, ...]
    down: tuple[float, ...]
    delay: tuple[tuple[float, ...], ...]
    loss: float = 0.0
    pairs: dict[tuple[int, int], float] = field(default_factory=dict)
    cut: frozenset[tuple[int, int]] = frozenset()
    tunnel: tuple[int, ...] = ()
    """Nodes behind a tunnel that swallows what is larger than it carries."""
    policed: tuple[int, ...] = ()
    """Nodes whose uplink drops what is beyond its rate and a bucket, and queues nothing."""
    jitter: float = 0.0
    disorder: float = 0.0
    """Chance that a packet is overtaken by those of the next ten milliseconds."""
    twice: float = 0.0
    queue: float = QUEUE

    def request(self, names: dict[int, PeerId], elements: int) -> PlanRequest:
        """Ask for a plan of a float32 all-reduce of these nodes on the lines as they are."""
        nodes = list(names)
        up, down = ({node: rates[node] * 1e6 / 8 * PAYLOAD for node in nodes} for rates in (self.up, self.down))
        links = {
            (names[a], names[b]): LinkEstimate(
                min(up[a], down[b], self.pairs.get((a, b), math.inf) * 1e6 / 8 * PAYLOAD), self.delay[a][b] / 1000
            )
            for a in nodes
            for b in nodes
            if a != b and (min(a, b), max(a, b)) not in self.cut
        }
        known = [{names[node]: rates[node] for node in nodes} for rates in (up, down)]
        return PlanRequest(tuple(names.values()), elements, 4, links, *known)


class Weather:
    """Draws what becomes of the lines, and makes it so."""

    def __init__(self, rng: random.Random, clusters: int, kinds: Sequence[str]) -> None:
        self.rng = rng
        self._kinds = kinds
        up = tuple(float(round(20 * 5 ** rng.random())) for _ in range(clusters))
        places = [(rng.uniform(0, 40), rng.uniform(0, 40)) for _ in range(clusters)]
        delay = tuple(tuple(0.0 if a == b else max(5.0, math.dist(a, b)) for b in places) for a in places)
        self._fair = Lines(up, up, delay)
        self.lines = self._fair
        self.wires = Emulator(up, up, delay, queue=QUEUE)

    def change(self) -> str:
        """Change the lines; say how."""
        if self.lines is not self._fair and self.rng.random() < 0.4:
            return self._become(self._fair, "as at first")
        return getattr(self, f"_{self.rng.choice(self._kinds)}")()

    def _slower(self) -> str:
        node, part = self._node(), self.rng.choice((0.1, 0.2, 0.5))
        line = tuple(r * part if n == node else r for n, r in enumerate(self._fair.up))
        return self._become(replace(self.lines, up=line, down=line), f"c{node} has {part:g} of its line")

    def _asymmetric(self) -> str:
        node, part = self._node(), self.rng.choice((0.1, 0.3))
        up = tuple(r * part if n == node else r for n, r in enumerate(self._fair.up))
        return self._become(replace(self.lines, up=up), f"c{node} has {part:g} of its uplink")

    def _pair(self) -> str:
        a, b = self.rng.sample(range(len(self._fair.up)), 2)
        return self._become(replace(self.lines, pairs={(a, b): 5.0, (b, a): 5.0}), f"5 Mbit/s between c{a} and c{b}")

    def _cut(self) -> str:
        a, b = sorted(self.rng.sample(range(len(self._fair.up)), 2))
        return self._become(replace(self.lines, cut=frozenset([(a, b)])), f"c{a} and c{b} are cut")

    def _longer(self) -> str:
        by = self.rng.choice((2.0, 4.0))
        delay = tuple(tuple(by * each for each in row) for row in self._fair.delay)
        return self._become(replace(self.lines, delay=delay), f"ways are {by:g} times as long")

    def _loss(self) -> str:
        loss = self.rng.choice((0.001, 0.01))
        return self._become(replace(self.lines, loss=loss), f"{loss:g} of all packets are lost")

    def _swallow(self) -> str:
        node = self._node()
        return self._become(replace(self.lines, tunnel=(node,)), f"large packets of c{node} are swallowed")

    def _jitter(self) -> str:
        return self._become(replace(self.lines, jitter=10.0), "10 ms of jitter")

    def _disorder(self) -> str:
        part = self.rng.choice((0.01, 0.1))
        return self._become(replace(self.lines, disorder=part), f"{part:g} of all packets come 10 ms late")

    def _police(self) -> str:
        node = self._node()
        return self._become(replace(self.lines, policed=(node,)), f"the uplink of c{node} polices")

    def _deep(self) -> str:
        return self._become(replace(self.lines, queue=2000.0), "queues of two seconds")

    def _twice(self) -> str:
        return self._become(replace(self.lines, twice=0.05), "0.05 of all packets come twice")

    def _forget(self) -> str:
        self.wires.tell("forget")
        return "firewalls forgot all connections"

    def _silence(self) -> str:
        node, lasts = self._node(), self.rng.uniform(0.5, 4.0)
        others = [n for n in range(len(self._fair.up)) if n != node]
        for other in others:
            self.wires.tell(f"cut {node} {other}")
        time.sleep(lasts)
        for other in others:
            if (min(node, other), max(node, other)) not in self.lines.cut:
                self.wires.tell(f"heal {node} {other}")
        return f"c{node} was silent for {lasts:.1f} s"

    def _node(self) -> int:
        return self.rng.randrange(len(self._fair.up))

    def _become(self, lines: Lines, what: str) -> str:
        nodes, tell = range(len(lines.up)), self.wires.tell
        for a in nodes:
            tell(f"rate {a} {lines.up[a]} {lines.down[a]}")
            tell(f"police {a} {lines.up[a] if a in lines.policed else 0} {BUCKET}")
            for b in nodes:
                if a != b:
                    tell(f"delay {a} {b} {lines.delay[a][b]}")
                    tell(f"pair {a} {b} {lines.pairs.get((a, b), 0)}")
                if a < b:
                    narrow = a in lines.tunnel or b in lines.tunnel
                    tell(f"swallow {a} {b} {TUNNEL if narrow else 0}")
                    tell(f"{'cut' if (a, b) in lines.cut else 'heal'} {a} {b}")
        for word in (
            f"loss {lines.loss}", f"jitter {lines.jitter}", f"reorder {lines.disorder} 10", f"twice {lines.twice}",
            f"queue {lines.queue}",
        ):  # fmt: skip
            tell(word)
        self.lines = lines
        return what


def main() -> None:
    """Measure; print, and perhaps save."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=whole(0), default=0)
    parser.add_argument("--clusters", type=whole(3), default=4)
    parser.add_argument("--mb", type=megabytes, default=8.0, help="tensor size in MB (1e6 bytes)")
    parser.add_argument("--spells", type=count, default=12, help="changes of the lines")
    parser.add_argument("--calls", type=count, default=6, help="calls after each change")
    parser.add_argument(
        "--kinds", nargs="+", default=list(KINDS), choices=KINDS + ODD, help=f"of changes; all but {', '.join(ODD)}"
    )
    parser.add_argument("--rest", type=seconds, default=0.0, help="seconds between two calls")
    parser.add_argument("--settle", type=seconds, default=20.0, help="seconds for the first probes, before any call")
    parser.add_argument("--json", type=output, help="file to write the results to")
    options = parser.parse_args()
    require_root(parser)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    weather = Weather(random.Random(options.seed), options.clusters, options.kinds)
    with weather.wires:
        spells = measure(weather, options)
    print(summary(spells))
    if options.json:
        options.json.write_text(json.dumps(spells, indent=1) + "\n")


def measure(weather: Weather, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Start the peers; change the lines under their calls."""
    context, pipes = multiprocessing.get_context("spawn"), []
    for number, path in enumerate(weather.wires.paths()):
        ours, theirs = context.Pipe()
        hosts = [weather.wires.address(n) for n in range(options.clusters)]
        context.Process(target=be, args=(number, path, hosts, options, theirs), daemon=True).start()
        pipes.append(ours)
    crowd = Crowd(pipes, int(options.mb * 1e6) // 4)
    crowd.ready()
    spells = [{"what": "first", "calls": [crowd.call(weather) for _ in range(1 + options.calls)]}]
    told(spells[-1])
    for _ in range(options.spells):
        typical = statistics.median(call["seconds"] for call in spells[-1]["calls"][-3:])
        change = Change(weather, weather.rng.uniform(0, typical))
        change.start()
        calls = [crowd.call(weather)]
        change.join()
        for _ in range(options.calls):
            time.sleep(options.rest)
            calls.append(crowd.call(weather))
        spells.append({"what": change.what, "calls": calls})
        told(spells[-1])
        if options.json:
            options.json.write_text(json.dumps(spells, indent=1) + "\n")
    return spells


class Change(threading.Thread):
    """Has the weather change after so many seconds."""

    def __init__(self, weather: Weather, after: float) -> None:
        super().__init__(daemon=True)
        self._weather = weather
        self._after = after
        self.what = ""

    def run(self) -> None:
        """Wait, and change it."""
        time.sleep(self._after)
        self.what = self._weather.change()


class Crowd:
    """All peers, from outside."""

    def __init__(self, pipes: list[Any], elements: int) -> None:
        self._pipes = pipes
        self._elements = elements

    def ready(self) -> None:
        """Wait until all have met."""
        for pipe in self._pipes:
            self._answer(pipe)

    def call(self, weather: Weather) -> dict[str, Any]:
        """Let all call; say what it took, and what the lines allow."""
        before = weather.lines
        for pipe in self._pipes:
            pipe.send(None)
        answers = [answer for answer in (self._answer(pipe) for pipe in self._pipes) if answer is not None]
        assert len({answer["clusters"] for answer in answers}) == 1, answers
        names = {int(name[1:]): leader for name, leader in answers[0]["leaders"].items()}
        truths = [lines.request(names, self._elements) for lines in (before, weather.lines)]
        made = plans.decode(answers[0]["plan"])
        return {
            "seconds": max(answer["seconds"] for answer in answers),
            "bound": max(planner.plan(truth).plan.bound for truth in truths),
            "price": made.seconds,
            "needs": needs(replace(truths[-1], participants=tuple(map(PeerId, made.participants))), made),
            "kind": made.kind,
            "shares": len(made.shares),
            "reason": answers[0]["reason"],
            "attempts": answers[0]["attempts"],
            "clusters": len(names),
            "cpu": sum(answer["cpu"] for answer in answers),
            "links": [link for answer in answers for link in answer["links"]],
        }

    def _answer(self, pipe: Any) -> Any:
        if not pipe.poll(PATIENCE):
            raise TimeoutError(f"a peer has not answered for {PATIENCE:g} s")
        answer = pipe.recv()
        if isinstance(answer, BaseException):
            raise answer
        return answer


def needs(truth: PlanRequest, made: plans.Plan) -> float:
    """Give the seconds of the busiest line for a plan's bytes; infinite where one of its links is cut."""
    try:
        return fluid(truth, made)
    except KeyError:
        return math.inf


def be(number: int, path: str, hosts: list[str], options: argparse.Namespace, pipe: Any) -> None:
    """Be one peer."""
    enter(path)
    torch.set_num_threads(1)
    config = ictp2p.Config.wan(
        cluster=f"c{number}", token=TOKEN, listen=f"{hosts[number]}:{PORT}",
        join=(f"{hosts[0]}:{PORT}",) if number else (),
    )  # fmt: skip
    try:
        with ictp2p.Peer(config) as peer:
            peer.gather(len(hosts), 60.0)
            time.sleep(options.settle)
            pipe.send(None)
            serve(number, peer, int(options.mb * 1e6) // 4, pipe)
    except BaseException as error:
        pipe.send(RuntimeError(f"c{number}: {error!r}"))
        raise


def serve(number: int, peer: ictp2p.Peer, elements: int, pipe: Any) -> None:
    """Call whenever it is asked for."""
    source, tensor, opened = pattern.brought(number, elements), torch.empty(elements), Opened(peer)
    while True:
        pipe.recv()
        tensor.copy_(source)
        opened.attempts = []
        began, cpu = time.perf_counter(), time.process_time()
        try:
            done = peer.all_reduce(tensor, op="sum")
        except ictp2p.errors.RoundMissed:
            pipe.send(None)
            continue
        took, cpu = time.perf_counter() - began, time.process_time() - cpu
        pattern.verify(tensor, [int(name[1:]) for name in done.clusters], "the call's sum")
        pipe.send({
            "seconds": took, "cpu": cpu, "clusters": tuple(done.clusters),
            "plan": opened.value.plan, "reason": opened.value.reason, "attempts": opened.attempts,
            "leaders": {each.cluster: each.leader for each in opened.value.participants}, "links": peer.links,
        })  # fmt: skip


class Opened:
    """The agreement on the call that is under way, or was the last one."""

    value: Open

    def __init__(self, peer: ictp2p.Peer) -> None:
        self.attempts: list[tuple[float, str]] = []
        peer._running.subscribe(self._notice)

    def _notice(self, notice: Notice) -> None:
        if isinstance(notice, Decided) and isinstance(notice.value, Open):
            self.value = notice.value
            self.attempts.append((time.time(), notice.value.reason))


def told(spell: dict[str, Any]) -> None:
    """Say how a spell went."""
    first, *rest = spell["calls"]
    said = "  ".join(
        " ".join(f"{call[key] / call['bound']:.2f}" for key in ("price", "needs", "seconds")) for call in rest
    )
    short = {call["clusters"] for call in spell["calls"]}
    print(f"{spell['what']:36} bound {rest[-1]['bound']:5.2f} s: ({first['seconds'] / first['bound']:.2f}) {said}"
          f"{'' if len(short) == 1 else f'  clusters {sorted(short)}'}", flush=True)  # fmt: skip


def summary(spells: list[dict[str, Any]]) -> str:
    """Say what calls took over the bound, by their place after the change."""
    rows = zip(*(spell["calls"][1:] for spell in spells[1:]), strict=True)
    ratios = [[call["seconds"] / call["bound"] for call in row] for row in rows]
    return "over the bound, median and worst, calls after a change: " + ", ".join(
        f"{statistics.median(row):.2f} {max(row):.2f}" for row in ratios
    )


if __name__ == "__main__":
    main()
