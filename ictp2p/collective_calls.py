"""Collective calls of a peer: `all_reduce` and its halves, `broadcast`, `barrier`, `sync_state`; messages beside them.

What a policy does for you these leave to you: call them from every worker of every cluster, in the same order. They
are all-or-nothing: a call that raises has touched none of your tensors and may be repeated. What the errors ask for:

- `RoundMissed`: other clusters, or the other workers of ours, went on without us (we were late, or cut off). Call
  `sync_state`, or repeat.
- `RoundTimeout`, `NoQuorum`: nothing was decided within `global_timeouts.complete`. Repeat the same call, or stop: it
  may have been decided since, and then gets what was. Who goes on with the next call instead is one behind.
- `RoundAborted`: a call that was queued before it (`async_op=True`) had failed unheard. Repeat from that one.
- `MeshMismatch`: the others bring other shapes, types or calls: the programs differ. Those who agree, of two
  clusters one, go on with a warning; `Completed.clusters` says whose tensors are in the result.

A cluster takes part from its first call on (or from `gather`); from then on the others wait for it, up to the
straggler timeout; and for that long after a policy of its has ended, for a call may follow. Calls of one peer run in
the order in which they were made, also those with `async_op=True`.
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
            weight: this worker's share in a mean, from 1e-18 to 1e18, in any unit common to all (tokens, say).
            async_op: return at once, with a `Work`; leave the tensors alone until it is done.
            codec: how elements travel between clusters: `none`, `bfloat16`, `float16`, `int8`, or `e3m0`, which round
                (in float16, sums too, nothing exceeds 65504: what is beyond is taken for that;
                types other than float32 and the 16-bit floats travel as they are); or `auto`: the fastest of `none`,
                `bfloat16` and `int8` on these links. None that leaves elements out: what it drops would be lost.

        Returns:
            Which clusters contributed, and what it took.

        Raises:
            ConfigError: the tensors mix types, or cannot be reduced by `op`; the weight is none;
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
        """Replace the tensors of one cluster's workers by the mean or sum over all workers; the others' stay.

        Args:
            tensors: one or several, all of one type; changed in place at the root, on success only.
            root_cluster: who gets the result.
            op: `AVG` or `SUM`.
            weight: this worker's share in a mean.
            async_op: return at once, with a `Work`.

        Raises:
            ConfigError, RoundMissed, RoundTimeout, NoQuorum, MeshMismatch: as `all_reduce`; RoundTimeout also while
                the root does not take part.
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
        """Reduce over all workers of all clusters; each cluster's workers get an equal part of the result.

        Who takes part decides how it is cut, so the answer says which part it is. The tensors stay as they are.

        Args:
            tensors: one or several, all of one type; seen as one behind the other.
            op: `AVG` or `SUM`.
            weight: this worker's share in a mean.
            async_op: return at once, with a `Work`.

        Raises:
            ConfigError, RoundMissed, RoundTimeout, NoQuorum, MeshMismatch: as `all_reduce`.
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
        """Give every worker what each cluster brings, which is its leader's, bit by bit.

        Args:
            tensors: one or several, of any types, the same shapes everywhere; they stay as they are.
            async_op: return at once, with a `Work`.

        Raises:
            ConfigError: a tensor cannot be sent.
            RoundMissed, RoundTimeout, NoQuorum, MeshMismatch: as `all_reduce`.
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
        """Replace everybody's tensors by those of one cluster, which are its leader's, bit by bit.

        Args:
            tensors: one or several, of any types; changed in place, on success only.
            root_cluster: whose they are.
            async_op: return at once, with a `Work`.

        Raises:
            ConfigError: a tensor cannot be sent, or the cluster's name cannot be one.
            RoundMissed, RoundTimeout, NoQuorum, MeshMismatch: as `all_reduce`.
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
        """Wait until every cluster that takes part has come to this call.

        Raises:
            RoundMissed, RoundTimeout, NoQuorum, MeshMismatch: as `all_reduce`.
        """
        engine = self._calls
        return answered(engine.submit("barrier", lambda: Barrier(engine.mesh, engine.past)), later=async_op)

    @overload
    def sync_state(self, state: Mapping[str, Tensor], async_op: Literal[False] = ...) -> Synced: ...
    @overload
    def sync_state(self, state: Mapping[str, Tensor], async_op: Literal[True]) -> Work[Synced]: ...
    def sync_state(self, state: Mapping[str, Tensor], async_op: bool = False) -> Synced | Work[Synced]:
        """Make the state of all workers one, bit by bit: what most clusters hold, or, for a newcomer, what is agreed.

        Call it before each stretch of work on the shared state. It costs a vote where nothing differs, and a download
        where we differ. This peer then serves the state to others, from a copy of its own (twice the state's bytes).

        Args:
            state: tensors by name, of any types, the same names and shapes everywhere; changed in place, on success.
            async_op: return at once, with a `Work`.

        Returns:
            The version, and whether the tensors were changed.

        Raises:
            ConfigError: the state is no mapping, or empty, or a tensor cannot be sent.
            MeshMismatch: the mesh shares something else; the first difference is named.
            StateError: nobody can provide the agreed state.
            RoundMissed, RoundTimeout, NoQuorum: as `all_reduce`.
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
        """Send tensors to another cluster's leader, from this one's. Needs no round, and no agreement.

        Messages of one tag arrive in the order in which they were sent, each once, also where connections break; any
        number may be under way. They are copied when the call is made. This ends once `recv` has. Where the receiving
        leader dies, or is taken for dead, before it could say so, its heir is given the message, too.

        Args:
            tensors: one or several, of any types.
            cluster: who receives.
            tag: which `recv` it is for.
            async_op: return at once, with a `Work`.

        Raises:
            ConfigError: a tensor cannot be sent, the tag is no integer of 64 bits, or the cluster is this one.
            RoundAborted: this peer does not lead its cluster.
            RoundTimeout: nobody said within `global_timeouts.complete` that it was received; it is withdrawn.
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
        """Replace tensors by the next message of another cluster's leader; of this cluster, its leader alone calls.

        Args:
            tensors: of the types and shapes that are sent; changed in place, on success only.
            cluster: who sends.
            tag: which of its messages.
            async_op: return at once, with a `Work`. Of each cluster messages of 64 tags are asked for at a time: one
                of another tag waits until one of these has come. Four move at a time.

        Raises:
            ConfigError: the cluster is this one, or the tag is no integer of 64 bits.
            MeshMismatch: the message has other types or shapes; it stays where it is.
            RoundAborted: this peer does not lead its cluster.
            RoundTimeout: nothing came within `global_timeouts.complete`. What was under way comes with the next call.
        """
        engine = self._calls
        return answered(
            engine.receive(Bundle(tensors, written=True), cluster_id(cluster), checked_tag(tag), engine.patience),
            later=async_op,
        )

    def gather(self, clusters: int, timeout: float | None = None) -> None:
        """Take part in calls from now on, and wait until so many clusters do, this one included.

        Args:
            clusters: how many.
            timeout: seconds; by default `global_timeouts.form`.

        Raises:
            ConfigError: the number is none, or below 1, or the timeout is no time.
            RoundTimeout: naming those that take part.
        """
        self._calls.gather(clusters, self._calls.form if timeout is None else timeout)

    @property
    def _calls(self) -> CallEngine:
        if self._engine is None:
            raise PeerClosed("the peer is not running: use `with peer:`")
        return self._engine
