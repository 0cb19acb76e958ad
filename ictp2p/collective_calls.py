"""Collective calls of a peer (`all_reduce`, `broadcast`, `sync_state` and others) and messages (`send`, `recv`).

Every worker of every cluster makes the same collective calls in the same order; a policy would see to that for you.
A call is all-or-nothing: one that raises has changed none of your tensors and may be repeated. What to do about errors:

- `RoundMissed`: the other clusters, or the other workers of this cluster, went on without this one, which was late or
  cut off. Call `sync_state`, or repeat the call.
- `RoundTimeout`, `NoQuorum`: nothing was decided within `global_timeouts.complete`. Repeat the same call, or stop. The
  call may have been decided since, and repeating it then returns that result. A program that goes on with its next
  call instead is one call behind the others.
- `RoundAborted`: an earlier call (`async_op=True`) had failed, and the program had not asked for its outcome yet.
  Repeat from that call.
- `MeshMismatch`: the other clusters bring other shapes, types or calls: the programs differ. The clusters that agree go
  on with a warning (of two that differ, one does); `Completed.clusters` says whose tensors are in the result.

A cluster takes part from its first call (or `gather`). From then on the others wait for it, up to the straggler
timeout, and also for that long after a policy of that cluster has ended, since a call may follow. Calls of one peer run
in the order in which they were made, also those with `async_op=True`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, overload

from torch import Tensor

from ictp2p.calls import parts
from ictp2p.calls.completed import Completed
from ictp2p.calls.engine import CallEngine
from ictp2p.calls.messages import checked_tag
from ictp2p.calls.parts import Gathered, Reduce, Scattered
from ictp2p.calls.rounds import AllReduce, Barrier, Broadcast
from ictp2p.calls.state import Synced, check_state
from ictp2p.calls.tensors import Addend, Bundle, as_weight
from ictp2p.collectives.codecs.prices import check_name, leaves_out
from ictp2p.errors import ConfigError, PeerClosed
from ictp2p.types import cluster_id
from ictp2p.work import Work, answered

__all__ = ["AVG", "SUM", "CollectiveCalls", "Completed", "Gathered", "Op", "Scattered", "Synced", "Work"]

Op = Literal["avg", "sum"]
AVG: Literal["avg"] = "avg"
"""The mean of all workers' tensors, by their weights."""
SUM: Literal["sum"] = "sum"
"""The sum of all workers' tensors."""


class CollectiveCalls:
    """The calls, as methods of `Peer`."""

    _engine: CallEngine | None = None

    @overload
    def all_reduce(
        self,
        tensors: Tensor | Sequence[Tensor],
        op: Op = ...,
        weight: float = ...,
        async_op: Literal[False] = ...,
        *,
        codec: str = ...,
    ) -> Completed: ...
    @overload
    def all_reduce(
        self,
        tensors: Tensor | Sequence[Tensor],
        op: Op = ...,
        weight: float = ...,
        *,
        async_op: Literal[True],
        codec: str = ...,
    ) -> Work[Completed]: ...
    def all_reduce(
        self,
        tensors: Tensor | Sequence[Tensor],
        op: Op = AVG,
        weight: float = 1.0,
        async_op: bool = False,
        *,
        codec: str = "none",
    ) -> Completed | Work[Completed]:
        """Replace tensors by their mean or sum over all workers of all clusters; the same bits everywhere.

        Args:
            tensors: one or several, all of one type; changed in place, on success only.
            op: `AVG` or `SUM`.
            weight: how much this worker's tensors count in a mean, from 1e-18 to 1e18, in any unit common to all
                workers (tokens, say); without effect on a sum.
            async_op: return a `Work` at once; do not touch the tensors until it is done.
            codec: how elements are encoded between clusters. `none` changes nothing; `bfloat16`, `float16`, `int8` and
                `e3m0` round (with `float16`, sums too, values beyond 65504 become 65504); `auto` is the fastest of
                `none`, `bfloat16` and `int8` on these links. Types other than float32 and the 16-bit floats are sent as
                they are. Sparse codecs are refused: what they leave out would be lost.

        Returns:
            Which clusters contributed, and how long it took.

        Raises:
            ConfigError: the tensors mix types, or cannot be reduced by `op`; the weight is not a number in its range;
                there is no such codec, or it needs error feedback, which a call does not have.
            RoundMissed: the others went on without this cluster.
            RoundTimeout, NoQuorum: nothing was decided in time.
            MeshMismatch: the others bring other tensors.
        """
        engine, addend = self._calls, Addend(Bundle(tensors, written=True), op, as_weight(weight))
        check_name(codec)
        if leaves_out(codec):
            raise ConfigError(
                f"codec {codec!r} leaves out all but the largest elements, and a call keeps nothing to bring the rest "
                "later: use SparseDiLoCo, whose residual does"
            )
        return answered(
            engine.submit("all_reduce", lambda: AllReduce(engine.mesh, engine.past, addend, codec)), later=async_op
        )

    @overload
    def reduce(
        self,
        tensors: Tensor | Sequence[Tensor],
        root_cluster: str,
        op: Op = ...,
        weight: float = ...,
        async_op: Literal[False] = ...,
    ) -> Completed: ...
    @overload
    def reduce(
        self,
        tensors: Tensor | Sequence[Tensor],
        root_cluster: str,
        op: Op = ...,
        weight: float = ...,
        *,
        async_op: Literal[True],
    ) -> Work[Completed]: ...
    def reduce(
        self,
        tensors: Tensor | Sequence[Tensor],
        root_cluster: str,
        op: Op = AVG,
        weight: float = 1.0,
        async_op: bool = False,
    ) -> Completed | Work[Completed]:
        """Replace the tensors of one cluster's workers by the mean or sum over all workers; other clusters' stay.

        Args:
            tensors: one or several, all of one type; changed in place at the root, on success only.
            root_cluster: the cluster whose workers get the result.
            op: `AVG` or `SUM`.
            weight: as for `all_reduce`.
            async_op: return a `Work` at once.

        Returns:
            Which clusters contributed, and how long it took.

        Raises:
            ConfigError, RoundMissed, RoundTimeout, NoQuorum, MeshMismatch: as for `all_reduce`; RoundTimeout also while
                the root cluster does not take part.
        """
        engine, root = self._calls, cluster_id(root_cluster)
        addend = Addend(Bundle(tensors, written=root == engine.cluster), op, as_weight(weight))

        def make() -> Reduce:
            return Reduce(engine.mesh, engine.past, addend, root, engine.cluster)

        return answered(engine.submit("reduce", make), later=async_op)

    @overload
    def reduce_scatter(
        self, tensors: Tensor | Sequence[Tensor], op: Op = ..., weight: float = ..., async_op: Literal[False] = ...
    ) -> Scattered: ...
    @overload
    def reduce_scatter(
        self, tensors: Tensor | Sequence[Tensor], op: Op = ..., weight: float = ..., *, async_op: Literal[True]
    ) -> Work[Scattered]: ...
    def reduce_scatter(
        self, tensors: Tensor | Sequence[Tensor], op: Op = AVG, weight: float = 1.0, async_op: bool = False
    ) -> Scattered | Work[Scattered]:
        """Reduce over all workers of all clusters, and give each cluster's workers an equal part of the result.

        How the result is divided depends on which clusters take part, so the answer says which part it is. The tensors
        are not changed.

        Args:
            tensors: one or several, all of one type, taken as one flat vector, each behind the one before.
            op: `AVG` or `SUM`.
            weight: as for `all_reduce`.
            async_op: return a `Work` at once.

        Returns:
            This cluster's part, a flat tensor, and the range of elements that it is.

        Raises:
            ConfigError, RoundMissed, RoundTimeout, NoQuorum, MeshMismatch: as for `all_reduce`.
        """
        engine, addend = self._calls, Addend(Bundle(tensors), op, as_weight(weight))

        def body(run: parts.Run) -> Scattered:
            return parts.reduce_scatter(run, engine.mesh, engine.past, addend, engine.cluster)

        return answered(engine.submit_all("reduce_scatter", body), later=async_op)

    @overload
    def all_gather(self, tensors: Tensor | Sequence[Tensor], async_op: Literal[False] = ...) -> Gathered: ...
    @overload
    def all_gather(self, tensors: Tensor | Sequence[Tensor], async_op: Literal[True]) -> Work[Gathered]: ...
    def all_gather(self, tensors: Tensor | Sequence[Tensor], async_op: bool = False) -> Gathered | Work[Gathered]:
        """Give every worker the tensors of each cluster, which are those of its leader, bit for bit.

        Args:
            tensors: one or several, of any types, the same types and shapes everywhere; they are not changed.
            async_op: return a `Work` at once.

        Returns:
            A list of tensors for each cluster that took part, of the shapes of `tensors`.

        Raises:
            ConfigError: a tensor cannot be sent.
            RoundMissed, RoundTimeout, NoQuorum, MeshMismatch: as for `all_reduce`.
        """
        engine, bundle = self._calls, Bundle(tensors)

        def body(run: parts.Run) -> Gathered:
            return parts.all_gather(run, engine.mesh, engine.past, bundle, engine.cluster)

        return answered(engine.submit_all("all_gather", body), later=async_op)

    @overload
    def broadcast(
        self, tensors: Tensor | Sequence[Tensor], root_cluster: str, async_op: Literal[False] = ...
    ) -> Completed: ...
    @overload
    def broadcast(
        self, tensors: Tensor | Sequence[Tensor], root_cluster: str, async_op: Literal[True]
    ) -> Work[Completed]: ...
    def broadcast(
        self, tensors: Tensor | Sequence[Tensor], root_cluster: str, async_op: bool = False
    ) -> Completed | Work[Completed]:
        """Replace the tensors of all workers by those of one cluster's leader, bit for bit.

        Args:
            tensors: one or several, of any types; changed in place, on success only.
            root_cluster: the cluster whose leader's tensors all get.
            async_op: return a `Work` at once.

        Returns:
            Which clusters took part, and how long it took.

        Raises:
            ConfigError: a tensor cannot be sent, or no cluster can have that name.
            RoundMissed, RoundTimeout, NoQuorum, MeshMismatch: as for `all_reduce`.
        """
        engine, bundle, root = self._calls, Bundle(tensors, written=True), cluster_id(root_cluster)
        return answered(
            engine.submit("broadcast", lambda: Broadcast(engine.mesh, engine.past, bundle, root)), later=async_op
        )

    @overload
    def barrier(self, async_op: Literal[False] = ...) -> Completed: ...
    @overload
    def barrier(self, async_op: Literal[True]) -> Work[Completed]: ...
    def barrier(self, async_op: bool = False) -> Completed | Work[Completed]:
        """Wait until every cluster that takes part has made this call.

        Args:
            async_op: return a `Work` at once.

        Returns:
            Which clusters took part, and how long it took.

        Raises:
            RoundMissed, RoundTimeout, NoQuorum, MeshMismatch: as for `all_reduce`.
        """
        engine = self._calls
        return answered(engine.submit("barrier", lambda: Barrier(engine.mesh, engine.past)), later=async_op)

    @overload
    def sync_state(self, state: Mapping[str, Tensor], async_op: Literal[False] = ...) -> Synced: ...
    @overload
    def sync_state(self, state: Mapping[str, Tensor], async_op: Literal[True]) -> Work[Synced]: ...
    def sync_state(self, state: Mapping[str, Tensor], async_op: bool = False) -> Synced | Work[Synced]:
        """Make the state of all workers the same, bit for bit: what most clusters hold; for a newcomer, what is agreed.

        Call it before each stretch of work on the shared state. It costs a vote, and a worker whose state differs also
        downloads the agreed one. This peer then serves the state to others, from copies that take twice its bytes.

        Args:
            state: tensors by name, of any types, the same names and shapes everywhere; changed in place, on success
                only.
            async_op: return a `Work` at once.

        Returns:
            The version of the agreed state, and whether this worker's tensors were changed.

        Raises:
            ConfigError: the state is not a mapping, or empty, or a tensor cannot be sent.
            MeshMismatch: the mesh shares something else; the first difference is named.
            StateError: nobody can provide the agreed state.
            RoundMissed, RoundTimeout, NoQuorum: as for `all_reduce`.
        """
        engine = self._calls
        check_state(state)
        tensors = dict(state)
        return answered(engine.submit("sync_state", lambda: engine.sync(tensors)), later=async_op)

    @overload
    def send(
        self, tensors: Tensor | Sequence[Tensor], cluster: str, tag: int = ..., async_op: Literal[False] = ...
    ) -> None: ...
    @overload
    def send(
        self, tensors: Tensor | Sequence[Tensor], cluster: str, tag: int = ..., *, async_op: Literal[True]
    ) -> Work[None]: ...
    def send(
        self, tensors: Tensor | Sequence[Tensor], cluster: str, tag: int = 0, async_op: bool = False
    ) -> Work[None] | None:
        """Send tensors from this cluster's leader to another cluster's leader. Takes no round, and no agreement.

        Messages of one tag arrive in the order in which they were sent, each once, also where connections break; any
        number may be under way. The tensors are copied when the call is made. The call ends once `recv` has the
        message. If the receiving leader dies, or is taken for dead, before it has confirmed that, its successor is
        given the message as well.

        Args:
            tensors: one or several, of any types.
            cluster: the cluster that receives them.
            tag: which `recv` they are for, an integer of at most 64 bits.
            async_op: return a `Work` at once.

        Raises:
            ConfigError: a tensor cannot be sent, the tag is not such an integer, or the cluster is this one.
            RoundAborted: this peer does not lead its cluster.
            RoundTimeout: nobody confirmed within `global_timeouts.complete` that the message was received. It is
                withdrawn.
        """
        engine = self._calls
        return answered(
            engine.send(Bundle(tensors), cluster_id(cluster), checked_tag(tag), engine.patience), later=async_op
        )

    @overload
    def recv(
        self, tensors: Tensor | Sequence[Tensor], cluster: str, tag: int = ..., async_op: Literal[False] = ...
    ) -> None: ...
    @overload
    def recv(
        self, tensors: Tensor | Sequence[Tensor], cluster: str, tag: int = ..., *, async_op: Literal[True]
    ) -> Work[None]: ...
    def recv(
        self, tensors: Tensor | Sequence[Tensor], cluster: str, tag: int = 0, async_op: bool = False
    ) -> Work[None] | None:
        """Replace tensors by the next message from another cluster's leader. Only this cluster's leader may call it.

        Calls for 64 tags of one cluster wait for messages at a time, and four messages move at a time; a call for one
        more tag waits until one of these is done.

        Args:
            tensors: of the types and shapes that are sent; changed in place, on success only.
            cluster: the cluster that sends them.
            tag: which of its messages, an integer of at most 64 bits.
            async_op: return a `Work` at once.

        Raises:
            ConfigError: the cluster is this one, or the tag is not such an integer.
            MeshMismatch: the message has other types or shapes; it can still be received.
            RoundAborted: this peer does not lead its cluster.
            RoundTimeout: nothing came within `global_timeouts.complete`. A message under way comes with the next call.
        """
        engine = self._calls
        return answered(
            engine.receive(Bundle(tensors, written=True), cluster_id(cluster), checked_tag(tag), engine.patience),
            later=async_op,
        )

    def gather(self, clusters: int, timeout: float | None = None) -> None:
        """Take part in collective calls from now on, and wait until that many clusters do.

        Args:
            clusters: how many, this one included; at least 1.
            timeout: seconds; by default `global_timeouts.form`.

        Raises:
            ConfigError: `clusters` is not a whole number of at least 1, or `timeout` is not a number of seconds.
            RoundTimeout: fewer take part by then; those that do are named.
        """
        self._calls.gather(clusters, self._calls.form if timeout is None else timeout)

    @property
    def _calls(self) -> CallEngine:
        if self._engine is None:
            raise PeerClosed("the peer is not running: use `with peer:`")
        return self._engine
