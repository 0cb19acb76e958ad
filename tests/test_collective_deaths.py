"""Workers that get SIGKILL in the middle of an all-reduce. Their values are powers of two, so a sum names its parts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes import Process, explained

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]
VALUES = {"a/0": 1, "a/1": 2, "a/2": 4, "b/0": 8, "b/1": 16}
CLUSTERS = 2


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[dict[str, Process]]:
    started: dict[str, Process] = {}
    try:
        with explained(started):
            for name, value in VALUES.items():
                first = next(iter(started.values()), None)
                address = first.told[-1]["address"] if first else ""
                arguments = [name[0], str(value), str(sum(VALUES.values())), str(CLUSTERS), address]
                errors = tmp_path / f"{name.replace('/', '')}.err"
                started[name] = Process(name, "tests.collective_worker", *arguments, stderr=errors)
                if first is None:
                    started[name].until("ready")
        yield started
    finally:
        for worker in started.values():
            worker.end()


def sums_of(worker: Process) -> list[float]:
    return [line["sum"] for line in worker.told if line["what"] == "reduced"]


@pytest.mark.parametrize("role", ["leader", "follower"])
def test_a_worker_killed_in_the_middle_of_an_all_reduce(workers: dict[str, Process], role: str) -> None:
    """The round is repeated without it: nothing of the others' is lost or counted twice, and nobody sees an error."""
    with explained(workers):
        kill_and_compare(workers, role)


def kill_and_compare(workers: dict[str, Process], role: str) -> None:
    ids = {name: worker.told[-1]["peer"] if name == "a/0" else "" for name, worker in workers.items()}
    for name in list(workers)[1:]:
        ids[name] = workers[name].until("ready")["peer"]
    leader = workers["a/0"].until("reduced")["leader"]
    names = {peer: name for name, peer in ids.items()}
    led_by = names[leader]
    victim = led_by if role == "leader" else next(n for n in ("a/1", "a/2", "a/0") if n != led_by)
    workers[led_by].until("progress", fraction=pytest.approx(0.3, abs=0.2))
    workers[victim].process.kill()

    survivors = {name: worker for name, worker in workers.items() if name != victim}
    for worker in survivors.values():
        worker.until("done")
    whole = sum(VALUES.values())
    sums = {tuple(sums_of(worker)) for worker in survivors.values()}
    assert len(sums) == 1, "every survivor got the same sums"
    found = list(next(iter(sums)))
    assert set(found) == {whole, whole - VALUES[victim]}
    assert found == sorted(found, reverse=True)
