"""The mesh that most scenarios start from: some clusters of a few workers, far apart, training one small model.

Each cluster has an access link, which all its traffic to other clusters shares, and sees every other one over a path
of the same delay. The model is small and the links are slow, so that a round takes seconds, as a large model over
fast links does, while all the numbers are really added and checked; `megabytes` above `REAL` let sizes travel instead
of numbers, with the same plans, connections and timing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ictp2p.errors import ConfigError
from sim.host import Host
from sim.settings import setting
from sim.stage import Stage
from sim.world import World

REAL = 16.0
"""Megabytes of state up to which it is really added up."""
NAMES = (
    "oslo", "tokyo", "zurich", "quito", "lagos", "delhi", "turin", "perth", "osaka", "paris", "lima", "accra", "cairo",
    "dakar", "seoul", "miami", "dublin", "madrid", "nairobi", "havana", "boston", "hanoi", "porto", "riga",
)  # fmt: skip


_NAMED = 8
"""Workers that are behind whose names are told."""
PEERS = 5000
"""Workers of a world at most: each is a whole peer, and a thousand of them take a gigabyte."""


def check_size(clusters: int, workers: int) -> None:
    """Refuse a world that no machine would hold, before half of it is built without a word.

    Raises:
        ConfigError: there are too many workers.
    """
    if clusters * workers > PEERS:
        raise ConfigError(
            f"clusters={clusters} times workers={workers} must be at most {PEERS}, for each is a whole peer"
        )


@dataclass(frozen=True, slots=True)
class Mesh:
    """What can be set in every scenario."""

    clusters: int = setting(8, "how many clusters", least=2)
    workers: int = setting(2, "workers of each cluster", least=1)
    compute: float = setting(10.0, "seconds of an inner phase: the time between two rounds", above=0, most=1e6)
    megabytes: float = setting(
        4.0, f"size of the state; above {REAL:g} only sizes travel, not numbers", least=0.0001, most=4e6
    )
    access: float = setting(4e6, "bytes/s that a cluster may send to all others together, and receive", least=1)
    delay: float = setting(0.03, "seconds one way between two clusters", least=0, most=60)
    profile: str = setting("wan", "the peers' timeouts: local, lan or wan", of=("local", "lan", "wan"))

    def __post_init__(self) -> None:
        check_size(self.clusters, self.workers)

    @property
    def elements(self) -> int:
        """Elements of the state, float32."""
        return max(1, int(self.megabytes * 1e6 / 4))

    @property
    def transfer(self) -> float:
        """Seconds that no all-reduce between these clusters can beat."""
        n = self.clusters
        return 2 * (n - 1) / n * self.megabytes * 1e6 / self.access

    @property
    def period(self) -> float:
        """Seconds from one round to the next, generously."""
        return self.compute + 4 * self.transfer + 10.0


def names(count: int) -> list[str]:
    """Give so many clusters names."""
    return [NAMES[n] if n < len(NAMES) else f"c{n:03}" for n in range(count)]


def world(stage: Stage, mesh: Mesh) -> World:
    """Open the world in which the clusters will be."""
    opened = stage.open(profile=mesh.profile, elide=mesh.megabytes > REAL, state_bytes=int(mesh.megabytes * 1e6))
    opened.links(delay=mesh.delay)
    return opened


def cluster(stage: Stage, mesh: Mesh, name: str, **changes: object) -> list[Host]:
    """Add a cluster as the mesh has them."""
    options: dict[str, object] = {
        "workers": mesh.workers, "up": mesh.access, "down": mesh.access, "compute": mesh.compute,
        "elements": mesh.elements, **changes,
    }  # fmt: skip
    return stage.world.cluster(name, **options)  # type: ignore[arg-type]


def built(stage: Stage, mesh: Mesh) -> World:
    """Build the whole mesh and let it find itself."""
    made = world(stage, mesh)
    for name in names(mesh.clusters):
        cluster(stage, mesh, name)
    gather(stage)
    return made


def gather(stage: Stage, within: float = 60.0) -> float:
    """Wait until everybody knows everybody; give the seconds it took."""
    seconds = stage.world.run_until(stage.world.believes_all, within, what="every cluster has a leader and knows all")
    stage.say(f"{len(stage.world.running())} workers in {len(stage.world.leaders())} clusters know each other")
    return seconds


def settle(stage: Stage, within: float) -> None:
    """Wait until all running workers that train hold the newest state, and check that they are equal."""
    world = stage.world

    def behind() -> list[str]:
        held, newest = world.versions(), world.version()
        return [host.name for host in _trainers(world) if held.get(host.name) != newest]

    def left() -> str:
        held = world.versions()
        at = [f"{name} at {held[name]}" if name in held else f"{name} never got in" for name in behind()]
        return f"every worker holds the newest state, version {world.version()} ({', '.join(at[:_NAMED])})"

    world.run_until(lambda: not behind(), within, what=left)
    workers = [host.worker for host in _trainers(world) if host.worker is not None]
    held = {(worker.state.version, worker.state.digest) for worker in workers}
    shown = " ".join(f"{version}:{digest.hex()[:8]}" for version, digest in sorted(held))
    stage.check(f"{len(workers)} workers hold one state", len(held) == 1, seen=shown, wanted="one version and digest")


def check_counted(stage: Stage) -> None:
    """Check that work was counted, each unit once; that none was counted twice is looked at all along."""
    ledger = stage.world.ledger
    sums = "sums exact to the last bit" if ledger.checked else "sizes only, sums not computed"
    stage.check("no work is lost or counted twice", ledger.included, seen=f"{len(ledger.included)} units, {sums}")


def check_lives(stage: Stage, restarted: Callable[[Host], bool] = lambda host: False) -> None:
    """Check that no process was started twice but those that the scenario restarted."""
    twice = [host.name for host in stage.world.every_host() if host.lives > 1 and not restarted(host)]
    stage.check("nobody else was restarted", not twice, seen=" ".join(twice) or "nobody")


def _trainers(world: World) -> list[Host]:
    """Who runs and is to train, also who never got into the mesh."""
    return [host for host in world.running() if world.clusters[host.cluster].workload is not None and not host.gone]
