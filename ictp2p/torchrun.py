"""Inside torchrun: the workers of one job form one cluster, without naming it and without addresses.

torchrun tells each worker who it is in the environment, and its agent keeps a `TCPStore` that all of them reach. Rank
0 starts its peer as the configuration says, then leaves the cluster's name and its address in the store; the others
join it there. The run id names the cluster if somebody chose one (`--rdzv-id`), so that a restarted job comes back
under the same name; torchrun's own default is the same word for every job in the world, and then rank 0 draws a name,
or has the one that its data folder was bound to by an earlier start.

After a death all workers are started again, and the store still knows what the last rank 0 left in it. No number tells
the two lives apart: each agent counts its own restarts, and none for a death elsewhere. So rank 0 takes back what is
there before it listens anywhere, and the others believe what they read if somebody listens at that address, and it is
still what they read afterwards: who listens where an earlier rank 0 did is rank 0 again, which has taken it back, or
came after a rank 0 that had.

Workers of one machine are told apart by `LOCAL_RANK`: a port that was given is counted up by it, and a data folder
gets a subfolder per rank. Whoever names the cluster in the configuration gets none of all this.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import hashlib
import re
import secrets
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from ictp2p.errors import ConfigError, Unreachable
from ictp2p.types import WILDCARDS, Address, cluster_id

if TYPE_CHECKING:
    from torch._C._distributed_c10d import TCPStore

    from ictp2p.config import Config

_UNNAMED = ("", "none")
"""Run ids that nobody chose."""
_PREFIX = "torchrun-"
_LAST_PORT = 65535
_KEY = "ictp2p/rank0"
_PAUSE = 0.1
"""Seconds between two looks at an address where nobody listens (yet)."""
_PATIENCE = 2.0
"""Seconds in which an address has to answer; it is asked again."""
_LONGEST = 48
"""Characters of a run id that fit into the cluster's name."""
_SHORTENED = 39
"""Characters that are left of one, before its digest."""


@dataclass(frozen=True, slots=True)
class Job:
    """What torchrun tells one of its workers."""

    run: str
    """The job's id; may be the same for jobs that have nothing to do with each other."""
    rank: int
    local_rank: int
    size: int
    master: Address
    """Where the store is."""
    agent_store: bool
    """Whether the agent keeps the store, which then outlives its workers; else rank 0 does."""

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Job | None:
        """Read the environment; None outside torchrun.

        Raises:
            ConfigError: a variable is missing or makes no sense.
        """
        if "TORCHELASTIC_RUN_ID" not in environment:
            return None
        try:
            return cls(
                environment["TORCHELASTIC_RUN_ID"],
                _whole(environment, "RANK"),
                _whole(environment, "LOCAL_RANK"),
                _whole(environment, "WORLD_SIZE"),
                Address(environment["MASTER_ADDR"], _whole(environment, "MASTER_PORT")),
                environment.get("TORCHELASTIC_USE_AGENT_STORE", "False") == "True",
            )
        except KeyError as error:
            raise ConfigError(f"this looks like torchrun, but {error.args[0]} is not in the environment") from error

    @property
    def cluster(self) -> str:
        """The cluster's name; where the id says nothing, only its beginning until rank 0 has drawn the rest.

        Two jobs are never one cluster: an id that cannot be a name as it is has its digest in it.
        """
        if self.run in _UNNAMED:
            return cluster_id(f"{_PREFIX}none")
        name = re.sub(r"[^a-z0-9._-]", "-", self.run.lower())
        if name != self.run or len(name) > _LONGEST:
            digest = hashlib.blake2b(self.run.encode(errors="surrogateescape"), digest_size=4).hexdigest()
            name = f"{name[:_SHORTENED]}-{digest}"
        return cluster_id(_PREFIX + name)

    @property
    def named(self) -> bool:
        """Whether the id says which job it is."""
        return self.run not in _UNNAMED


def completed(values: Mapping[str, Any], environment: Mapping[str, str], listen: str) -> dict[str, Any]:
    """Configuration values with what torchrun knows; as they are outside it, or if they name the cluster.

    Args:
        values: as given.
        environment: where torchrun's variables are.
        listen: where a peer listens that was given no address.
    """
    job = None if "cluster" in values else Job.of(environment)
    if job is None:
        return dict(values)
    known: dict[str, Any] = {"cluster": job.cluster, "rank": job.rank, "listen": listen, **values}
    for name in ("listen", "advertise"):
        known |= {name: _counted(name, known[name], job.local_rank)} if name in known else {}
    if isinstance(folder := known.get("data_dir"), str | PurePath) and str(folder):
        known["data_dir"] = str(PurePath(folder) / f"rank-{job.rank}")
    return known


class Rendezvous:
    """How the workers of one job find each other.

    Args:
        job: which, and which of its workers this is.
        timeout: seconds to wait for rank 0.
    """

    def __init__(self, job: Job, timeout: float) -> None:
        self._job = job
        self._timeout = timeout
        self._store: TCPStore | None = None

    def before(self, config: Config, home: Callable[[str | None], str | None]) -> Config:
        """The configuration to start with: at rank 0 with its final name, elsewhere with rank 0's, and its address.

        Args:
            config: as given.
            home: says of which cluster the peer of a data folder is, if it has one already.

        Raises:
            Unreachable: the store, or rank 0, did not answer in time.
        """
        if self._job.rank == 0:
            with self._answering():
                self._opened().delete_key(_KEY)
            name = self._job.cluster if self._job.named else home(config.data_dir)
            return dataclasses.replace(config, cluster=name or f"{_PREFIX}{secrets.token_hex(6)}")
        name, address = self._asked().split()
        return dataclasses.replace(config, cluster=name, join=(address, *config.join))

    def after(self, config: Config, address: Address) -> None:
        """At rank 0: tell the others where this worker listens.

        Raises:
            Unreachable: the store did not answer in time.
        """
        if self._job.rank:
            return
        host = self._job.master.host if address.host in WILDCARDS else address.host
        with self._answering():
            self._opened().set(_KEY, f"{config.cluster} {Address(host, address.port)}")

    def _asked(self) -> str:
        """What rank 0 says, and stands by."""
        over = time.monotonic() + self._timeout
        while True:
            told = self._told()
            if _listens(Address.parse(told.split()[1])) and self._told() == told:
                return told
            if time.monotonic() >= over:
                raise Unreachable(
                    f"rank 0 of torchrun job {self._job.run!r} did not start its peer within {self._timeout:g} s: "
                    f"nobody listens where it is said to be, at {told.split()[1]}"
                )
            time.sleep(_PAUSE)

    def _told(self) -> str:
        from torch.distributed import DistError

        try:
            return self._opened().get(_KEY).decode()
        except DistError as error:
            raise Unreachable(
                f"rank 0 of torchrun job {self._job.run!r} did not start its peer within {self._timeout:g} s"
            ) from error

    def _opened(self) -> TCPStore:
        """The store, kept: where the agent keeps none, it lives in this very object at rank 0."""
        from torch._C._distributed_c10d import TCPStore

        if self._store is None:
            job = self._job
            with self._answering():
                self._store = TCPStore(
                    job.master.host,
                    job.master.port,
                    job.size,
                    job.rank == 0 and not job.agent_store,
                    datetime.timedelta(seconds=self._timeout),
                    wait_for_workers=False,
                    multi_tenant=True,
                )
        return self._store

    @contextlib.contextmanager
    def _answering(self) -> Iterator[None]:
        """Have what the store cannot be asked said in our words."""
        from torch.distributed import DistError

        try:
            yield
        except DistError as error:
            raise Unreachable(f"torchrun's store at {self._job.master} did not answer: {error}") from error


def rendezvous(config: Config, environment: Mapping[str, str]) -> Rendezvous | None:
    """What a peer with this configuration has to find its mates by; None if it is not torchrun that named it."""
    job = Job.of(environment)
    if job is None or config.cluster != job.cluster:
        return None
    return Rendezvous(job, config.global_timeouts.form)


def _listens(address: Address) -> bool:
    try:
        socket.create_connection(address, _PATIENCE).close()
    except OSError:
        return False
    return True


def _whole(environment: Mapping[str, str], name: str) -> int:
    text = environment[name]
    try:
        return int(text)
    except ValueError:
        raise ConfigError(f"this looks like torchrun, but {name}={text!r} is not a whole number") from None


def _counted(name: str, value: Any, local_rank: int) -> Any:
    """An address with its port counted up; whatever is none stays, for the check of the whole to refuse by name."""
    if not isinstance(value, str):
        return value
    try:
        address = Address.parse(value)
    except ConfigError:
        return value
    port = address.port + local_rank
    if port > _LAST_PORT:
        raise ConfigError(
            f"{name}: {value!r} leaves local rank {local_rank} no port: each worker of a machine takes the one after "
            f"the last, up to {_LAST_PORT}"
        )
    return str(address._replace(port=port)) if address.port else value
