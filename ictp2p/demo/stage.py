"""The stage of the demo: workers come and go on it, and the script waits for what they say.

There is one wait, `until`: a condition over the record of what the workers have said, a name for it, a deadline.
While it waits, events are folded into the record, told to the audience and shown to the `trap`, if one is set.
Nothing polls and nothing sleeps. A worker that ends, or says that it failed, when the script has not let it go
fails the run at once; a wait that passes its deadline fails it with what every worker last said.
"""

from __future__ import annotations

import queue
import signal
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from ictp2p.demo import lines
from ictp2p.demo.lines import Event
from ictp2p.demo.narrator import Narrator, summary
from ictp2p.demo.processes import Worker
from ictp2p.demo.report import Record
from ictp2p.demo.show import Display
from ictp2p.errors import IctError
from ictp2p.outputs import Output

T = TypeVar("T")
Trap = Callable[[Worker, Event], None]

BAR_SECONDS = 0.2
"""Between two drawings of the bar: events come by the hundred, eyes do not."""


class DemoFailed(IctError):
    """The run did not do what it must; the message says what was waited for and what the workers last said."""


class Stage:
    """The workers of one run, and what they have said."""

    def __init__(self, seconds: float, display: Display, environment: Mapping[str, str], log: Output | None) -> None:
        self.record = Record(time.time())
        self.workers: dict[str, Worker] = {}
        """By name; those that ended stay listed."""
        self.trap: Trap | None = None
        """Sees each event of a worker the moment it is read."""
        self._display = display
        self._environment = environment
        self._log = log
        self._seconds = seconds
        self._deadline = time.monotonic() + seconds
        self._heard: queue.SimpleQueue[tuple[Worker, Event]] = queue.SimpleQueue()
        self._last: dict[str, Event] = {}
        self._names: dict[str, str] = {}
        self._narrator = Narrator(self.record.started_at, self._names)
        self._ticks = (0, 1)
        self._drawn_at = 0.0

    def spawn(self, cluster: str, number: int, command: Sequence[str]) -> Worker:
        """Start a worker and listen to it."""
        worker = Worker(f"{cluster}/{number}", cluster, command, self._environment)
        self.workers[worker.name] = worker
        worker.listen(self._heard)
        return worker

    def until(self, condition: Callable[[], T | None], what: str, seconds: float) -> T:
        """Hear the workers until `condition` is neither None nor False, and return it.

        Raises:
            DemoFailed: `seconds`, or those of the whole run, have passed; or a worker failed meanwhile.
        """
        deadline = min(time.monotonic() + seconds, self._deadline)
        while (found := condition()) is None or found is False:
            try:
                worker, event = self._heard.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise DemoFailed(self._gave_up(what, seconds)) from None
            self._take(worker, event)
        return found

    def said(self, workers: Iterable[Worker], kind: str) -> bool:
        """Whether the last word of each of `workers` was of this kind."""
        return all(self._last.get(worker.name, {}).get("kind") == kind for worker in workers)

    def alive(self) -> list[Worker]:
        """The workers that the script has not let go, by name."""
        return [worker for _, worker in sorted(self.workers.items()) if not worker.may_end]

    def leader(self, cluster: str) -> Worker | None:
        """The worker that leads a cluster, as far as has been heard."""
        _, peer = self.record.leaders.get(cluster, (0, None))
        return next((worker for worker in self.workers.values() if peer and worker.peer == peer), None)

    def headline(self, text: str) -> None:
        """Tell the audience what the script does."""
        self._display.headline(text)

    def tick(self, total: int) -> None:
        """Move the bar by one, of `total`."""
        self._ticks = self._ticks[0] + 1, total
        self._draw()

    def reap(self) -> None:
        """End every worker: all of them first, so that a second Ctrl-C in the waits that follow leaves none."""
        for worker in self.workers.values():
            worker.end()
        for worker in self.workers.values():
            worker.reap()

    def _take(self, worker: Worker, event: Event) -> None:
        event = {"time": time.time(), **event}
        if self.trap is not None:
            self.trap(worker, event)
        if self._log is not None:
            self._log.write(lines.encode({"worker": worker.name, **event}) + "\n")
        self._last[worker.name] = event
        try:
            self._understand(worker, event)
        except (KeyError, TypeError, ValueError) as error:
            raise DemoFailed(f"{worker.name} said {lines.encode(event)}, which cannot be read: {error!r}") from error
        if time.monotonic() - self._drawn_at > BAR_SECONDS:
            self._draw()

    def _understand(self, worker: Worker, event: Event) -> None:
        if event["kind"] == "ready":
            worker.peer, worker.address = str(event["peer"]), str(event["address"])
            self._names[worker.peer] = worker.name
        self.record.observe(worker.name, worker.cluster, event)
        line = self._narrator.tell(worker.name, worker.cluster, event)
        if line is not None:
            self._display.line(line)
        if not worker.may_end and event["kind"] == "failed":
            raise DemoFailed(f"{worker.name} failed: {event.get('error')}: {event.get('text')}")
        if not worker.may_end and event["kind"] == "exited":
            raise DemoFailed(f"{worker.name} ended by itself, {_how(event.get('code'))}{_quoted(worker)}")

    def _draw(self) -> None:
        self._drawn_at = time.monotonic()
        self._display.progress(*self._ticks, summary(self.record))

    def _gave_up(self, what: str, seconds: float) -> str:
        over = time.monotonic() >= self._deadline
        limit = f"the run's {self._seconds:g} s (--seconds) are over" if over else f"nothing for {seconds:g} s"
        last = (self._last_said(worker) for worker in self.workers.values())
        quotes = (_quoted(worker) for worker in self.alive())
        return "\n  ".join([f"{limit}: waited for {what}", *last]) + "".join(quotes)

    def _last_said(self, worker: Worker) -> str:
        event = self._last.get(worker.name)
        if event is None:
            return f"{worker.name}: said nothing"
        return f"{worker.name}: last said {event['kind']}, {time.time() - event['time']:.1f} s ago"


def _how(code: object) -> str:
    if isinstance(code, int) and code < 0:
        return f"by {signal.Signals(-code).name}"
    return f"with exit status {code}"


def _quoted(worker: Worker) -> str:
    if not worker.last_words:
        return ""
    return f"\n--- last words of {worker.name}:\n{worker.last_words}"
