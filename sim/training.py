"""Training loops in a simulated world: any program around the product's own policies, on virtual time.

    def program(training: Training) -> float:
        model = ...
        with ictp2p.DiLoCo(training, model, inner, sync_every=50) as policy:
            for batch in batches:
                model(batch).mean().backward()
                training.compute(0.1)      # what the step takes, in virtual seconds
                inner.step()
                inner.zero_grad()
            return evaluate(policy.global_parameters())

    with World(seed=1) as world:
        for name in "abcd":
            world.cluster(name, workers=1, program=program)
        results = world.train(within=3600)

Each worker runs `program` in a thread of its own (`sim.threads`), with a `Training` that is `ictp2p.training`'s
`TrainingMesh` over the worker's own `AsyncPeer`: policies, their conversations with the mesh, rosters, agreement and
the data plane are those that ship. What is idealised is the process group inside a cluster (`sim.group`), and that
computation costs what the program says.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from ictp2p.async_peer import AsyncPeer
from ictp2p.collectives.group.local import GroupTimeouts
from ictp2p.handle.service import PeerService
from ictp2p.handle.thread import ThreadHandle
from ictp2p.runtime.life import Life
from ictp2p.runtime.reduction import Outcome
from ictp2p.sync.mesh import RoundRequest
from ictp2p.sync.rosters.roster import Roster
from ictp2p.training.mesh import Openable, TrainingMesh
from ictp2p.types import ClusterId
from sim.group import SimGroup
from sim.threads import BesideLoop, Crew

if TYPE_CHECKING:
    from sim.host import Host

T = TypeVar("T")
Program = Callable[["Training"], Any]
"""What a worker does; its result is kept (`Training.result`)."""


_LOOK = 0.01
"""Virtual seconds between two looks at whether all have come."""
NEWS = 2.0
"""Virtual seconds in which gossip reaches everybody."""


class Training(TrainingMesh):
    """A simulated worker's peer as its training program sees it: what policies take, and what time it takes.

    Args:
        host: where it runs.
        peer: started.
        crew: the threads of its process.
    """

    def __init__(self, host: Host, peer: AsyncPeer, crew: Crew) -> None:
        self.host = host
        self.life = host.lives
        """Which of its processes this is of."""
        self.result: Any = None
        """What the program gave."""
        self.over = False
        """Whether the program has ended."""
        self.met = False
        """Whether the program has come to `meet`."""
        self._crew = crew
        life = Life(lambda kind, **fields: peer.telemetry.event(kind, **fields))
        service = PeerService(peer)
        service.serve()
        super().__init__(ThreadHandle(BesideLoop(crew), service), life)

    @property
    def cluster(self) -> ClusterId:
        """The cluster that this worker belongs to."""
        return self._peer.config.cluster_id

    def compute(self, seconds: float) -> None:
        """Compute for so long, on this host as fast as it is now."""
        seconds *= self.host.slowness
        self._crew.sleep(seconds)

    def meet(self) -> None:
        """Wait until every program of the world has come here, and a while longer, so that all clusters know it.

        A start gun for measurements, which no real mesh has: without it those who are up first train ahead.
        """
        world = self.host.world
        self.met = True
        learners = [host for host in world.every_host() if world.clusters[host.cluster].program is not None]
        while not all(host.training is not None and host.training.met for host in learners):
            self._crew.sleep(_LOOK)
        self._crew.sleep(NEWS)

    def steps(self, loader: Iterable[T]) -> Iterator[T]:
        """The batches of `loader`."""
        yield from loader

    def round(self, request: RoundRequest) -> Outcome:
        """Take part in a round; see `TrainingMesh.round`. What it brings is none of the ledger's units."""
        self.host.world.ledger.stands(self._peer.id, self.cluster, ())
        return super().round(request)

    def _make_group(self, roster: Roster, patience: GroupTimeouts) -> Openable:
        return SimGroup(roster, self.host, self._crew, patience.join)


async def train(host: Host, peer: AsyncPeer, program: Program) -> None:
    """On the loop, as the host's process: run `program` to its end, or until the process is killed."""
    assert host.process is not None
    loop = host.world.loop
    crew = Crew(loop, host.process)
    training = host.training = Training(host, peer, crew)
    ended = loop.create_future()

    def run() -> None:
        try:
            training.result = program(training)
        except Exception:
            loop.errors.append(f"{host.name}: its program failed\n{traceback.format_exc()}")
        training.over = True
        crew.soon(lambda: None if ended.done() else ended.set_result(None))

    crew.start(run, host.name)
    try:
        await ended
    finally:
        crew.end()
