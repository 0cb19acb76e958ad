"""The story of the demo, in acts: what is done to the clusters, and what must come of it.

Six workers in three clusters train; then, in one run and without restarting anything, the leader of one cluster
dies in the middle of an outer all-reduce, a fourth cluster joins, and another one drains. Every act says what it
cost: seconds from the deed to the next committed round, the first one of who joins, or the first without who drains.

**In the middle** is meant literally: the leader's own `reduce_progress` event, with a fraction of at least
`STRIKE_FROM` and below 1, pulls the trigger in the call that reads it, if that is within `STRIKE_WITHIN` seconds. On
loopback the all-reduce of this model would be over before a signal arrives, so tensor traffic is paced to a wide-area
rate (`Options.bulk_rate`).
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence
from typing import Any

from ictp2p.demo.lines import Event
from ictp2p.demo.processes import Worker
from ictp2p.demo.report import Round
from ictp2p.demo.stage import DemoFailed, Stage

FOUNDERS = ("oslo", "tokyo", "zurich")
VICTIM = "zurich"
JOINER = "quito"
LEAVER = "tokyo"

STRIKE_FROM = 0.3
"""Fraction of the all-reduce that the victim has finished when it is struck, at least."""

STRIKE_WITHIN = 0.1
"""Seconds after which such an event is no news: the all-reduce, which takes half a second, may be over by then."""

START_SECONDS = 90.0
"""For a process to import torch, on a busy machine, and enter the mesh."""
ROUND_SECONDS = 60.0
"""For one thing to happen in training: a round, a takeover, a departure. Ten times what it takes."""

SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}
"""What strikes: a process whose sockets are reset at once, or one that goes silent with its sockets open."""

Commander = Callable[[str, int, Sequence[str]], Sequence[str]]
"""(cluster, number, addresses to join) -> a worker's command line."""


class Script:
    """One performance."""

    def __init__(self, stage: Stage, commander: Commander, *, workers: int, rounds: int, fault: str) -> None:
        self._stage = stage
        self._record = stage.record
        self._commander = commander
        self._workers = workers
        self._rounds = rounds
        self._fault = fault
        self._present = set(FOUNDERS)
        self._total = 3 * rounds + 5
        self._struck: dict[str, Any] | None = None
        self._guilty: list[tuple[str, float, float]] = []
        self._ended_at = float("inf")

    def play(self) -> set[str]:
        """All acts, in order; the names of the workers that stayed to the end.

        Raises:
            DemoFailed: something did not come in time, or a worker ended that should not.
        """
        self._gather()
        self._train("Steady rounds")
        self._strike()
        self._join()
        self._train("All four train")
        self._drain()
        self._train("Those who stayed train on")
        return self._finish()

    def false_suspicions(self) -> list[dict[str, Any]]:
        """Suspicions, while the run lasted, of a peer or cluster that had no fault at the time."""
        return [
            suspicion
            for suspicion in self._record.suspicions
            if suspicion["time"] < self._ended_at
            and not any(suspicion["member"] == who and t0 <= suspicion["time"] <= t1 for who, t0, t1 in self._guilty)
        ]

    def _gather(self) -> None:
        self._stage.headline(f"{len(FOUNDERS)} clusters of {self._workers} workers find each other")
        first = self._spawn(FOUNDERS[0], 0, ())
        self._ready([first])
        others = [
            self._spawn(cluster, number, _addresses([first]))
            for cluster in FOUNDERS
            for number in range(self._workers)
            if (cluster, number) != (FOUNDERS[0], 0)
        ]
        self._ready(others)
        for worker in (first, *others):
            worker.tell(do="go")

    def _train(self, title: str) -> None:
        self._stage.headline(f"{title}: {', '.join(sorted(self._present))}")
        since = time.time()
        for _ in range(self._rounds):
            since = self._committed(since, f"a round of {sorted(self._present)}", self._by_all).time
            self._stage.tick(self._total)

    def _strike(self) -> None:
        self._stage.headline(f"The leader of {VICTIM} is about to get {SIGNALS[self._fault].name}, in mid-reduce")
        self._stage.trap = self._trap
        struck = self._stage.until(lambda: self._struck, f"the leader of {VICTIM} in mid-reduce", ROUND_SECONDS)
        at = float(struck["time"])
        self._stage.headline(
            f"{SIGNALS[self._fault].name} to {struck['worker']} with {struck['fraction']:.0%} of round "
            f"{struck['round']} reduced"
        )
        after = self._committed(at, "a round committed after the leader's end", lambda _: True)
        struck["recovery_seconds"] = after.time - at
        struck["recovered_by"] = [after.round, after.attempt]
        struck["recovered_with"] = list(after.participants)
        self._stage.tick(self._total)
        # The round that was struck may still be committed without its dead participant: that is no comeback.
        back = self._committed(
            at,
            f"a round with {VICTIM} under a new leader",
            lambda r: VICTIM in r.participants and [r.round, r.attempt] != [struck["round"], struck["attempt"]],
        )
        struck["takeover_seconds"] = self._stage.until(lambda: self._elected(at), "a new leader", ROUND_SECONDS) - at
        struck["back_seconds"] = back.time - at
        self._blame(VICTIM, at, back.time)
        self._record.events.append(struck)
        self._stage.tick(self._total)
        self._stage.headline(
            f"The next round was committed {struck['recovery_seconds']:.2f} s after the {self._fault}; "
            f"{VICTIM} was back after {struck['back_seconds']:.2f} s"
        )

    def _trap(self, worker: Worker, event: Event) -> None:
        if event["kind"] != "reduce_progress" or worker is not self._stage.leader(VICTIM):
            return
        if not STRIKE_FROM <= float(event["fraction"]) < 1.0:
            return
        if time.time() - float(event["time"]) > STRIKE_WITHIN:
            return
        worker.may_end = True
        # Before the deed: who hears of it may answer before we go on, and an answer must not precede its cause.
        now = time.time()
        worker.signal(SIGNALS[self._fault])
        self._stage.trap = None
        self._blame(str(worker.peer), now)
        self._struck = {
            "kind": self._fault,
            "cluster": VICTIM,
            "worker": worker.name,
            "time": now,
            "round": event["round"],
            "attempt": event["attempt"],
            "fraction": float(event["fraction"]),
        }

    def _join(self) -> None:
        self._stage.headline(f"{JOINER} joins, knowing the address of one follower")
        at = time.time()
        # Any one address of the mesh is enough, so the hardest is taken: not a leader's.
        leaders = {self._stage.leader(cluster) for cluster in FOUNDERS}
        known = next((worker for worker in self._stage.alive() if worker not in leaders), self._stage.alive()[0])
        joined = [self._spawn(JOINER, number, _addresses([known])) for number in range(self._workers)]
        self._ready(joined)
        ready = time.time()
        for worker in joined:
            worker.tell(do="go")
        first = self._committed(ready, f"a round with {JOINER}", lambda r: JOINER in r.participants)
        self._present.add(JOINER)
        missed = [r for r in self._record.committed if ready < r.time < first.time]
        self._record.events.append(
            {
                "kind": "join",
                "cluster": JOINER,
                "time": at,
                "start_seconds": ready - at,
                "recovery_seconds": first.time - ready,
                "rounds": len(missed) + 1,
            }
        )
        self._stage.tick(self._total)
        self._stage.headline(
            f"{JOINER} took part {first.time - ready:.2f} s after it was ready, {_nth(len(missed) + 1)}"
        )

    def _drain(self) -> None:
        self._stage.headline(f"{LEAVER} drains")
        leaving = [worker for worker in self._stage.alive() if worker.cluster == LEAVER]
        self._landed(leaving)
        at = time.time()
        for member in (LEAVER, *(str(worker.peer) for worker in leaving)):
            self._blame(member, at)
        for worker in leaving:
            worker.may_end = True
            worker.tell(do="drain")
        self._present.discard(LEAVER)
        after = self._committed(at, f"a round without {LEAVER}", lambda r: LEAVER not in r.participants)
        self._exited(leaving, "drain")
        self._record.events.append(
            {"kind": "drain", "cluster": LEAVER, "time": at, "recovery_seconds": after.time - at}
        )
        self._stage.tick(self._total)
        self._stage.headline(
            f"{LEAVER} has left; the first round without it was committed {after.time - at:.2f} s after it was told to"
        )

    def _finish(self) -> set[str]:
        staying = self._stage.alive()
        names = {worker.name for worker in staying}
        target = -1
        while not all(self._record.finals.get(worker.name, {}).get("version") == target for worker in staying):
            # Far enough ahead that nobody has passed it when it hears of it; if one has, they all go on to a later.
            target = self._record.version + 2
            self._stage.headline(f"All stop at version {target}")
            self._record.finals.clear()
            for worker in staying:
                worker.tell(do="stop", version=target)
            what = f"every worker at version {target}"
            self._stage.until(lambda: names <= self._record.finals.keys(), what, ROUND_SECONDS)
        self._ended_at = time.time()  # from here on everybody is going, and may be missed by who goes later
        for worker in staying:
            worker.may_end = True
            worker.tell(do="exit")
        self._exited(staying, "exit")
        self._stage.tick(self._total)
        return names

    def _spawn(self, cluster: str, number: int, join: Sequence[str]) -> Worker:
        return self._stage.spawn(cluster, number, self._commander(cluster, number, join))

    def _ready(self, workers: Sequence[Worker]) -> None:
        names = ", ".join(worker.name for worker in workers)
        self._stage.until(lambda: all(worker.address for worker in workers), f"{names} to be ready", START_SECONDS)

    def _committed(self, since: float, what: str, fits: Callable[[Round], bool]) -> Round:
        def find() -> Round | None:
            return next((r for r in self._record.committed if r.time > since and fits(r)), None)

        return self._stage.until(find, what, ROUND_SECONDS)

    def _landed(self, workers: Sequence[Worker]) -> None:
        """Wait until these have the newest state: who is told to drain as it lands may go a round before its mate."""
        newest, versions = self._record.committed[-1].version or 0, self._record.versions
        names = ", ".join(worker.name for worker in workers)
        self._stage.until(
            lambda: all(versions.get(worker.name, 0) >= newest for worker in workers),
            f"version {newest} at {names}",
            ROUND_SECONDS,
        )

    def _by_all(self, round_: Round) -> bool:
        return set(round_.participants) == self._present

    def _elected(self, since: float) -> float | None:
        return next((time for time, cluster, _ in self._record.elections if cluster == VICTIM and time > since), None)

    def _exited(self, workers: Sequence[Worker], order: str) -> None:
        names = ", ".join(worker.name for worker in workers)
        self._stage.until(lambda: self._stage.said(workers, "exited"), f"{names} to {order}", ROUND_SECONDS)
        for worker in workers:
            if worker.exit_code != 0:
                raise DemoFailed(f"{worker.name} was told to {order} and ended with exit status {worker.exit_code}")

    def _blame(self, member: str, since: float, until: float = float("inf")) -> None:
        self._guilty.append((member, since, until))


def _addresses(workers: Sequence[Worker]) -> list[str]:
    return [worker.address for worker in workers if worker.address]


def _nth(number: int) -> str:
    return f"in the {['', 'first', 'second', 'third'][number] if number < 4 else f'{number}th'} round after"
