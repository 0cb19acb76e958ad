"""The process group: torch's calls in, coroutines of `Engine` and `Messages` out.

Calls are numbered in the order in which they are made, which must be the same on every rank, as torch has it; they
then run side by side. A call that fails (a rank died, or was given what cannot be, or nobody came in time) fails on
every rank that takes part, within the stall deadline, and what its tensors hold is undefined. The connections of the
others stand.

torch has two names for some calls, the old of which C++ still uses: both are here. Parameters have torch's own names,
by which some callers give them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Any, TypeAlias

import torch
import torch.distributed.distributed_c10d
from torch import Tensor

from ictp2p.edge.credential import Mesh
from ictp2p.errors import ConfigError, IctError
from ictp2p.torch_backend.calls import Calls, Start
from ictp2p.torch_backend.cards import Card, meet
from ictp2p.torch_backend.described import DescribedGroup
from ictp2p.torch_backend.endpoint import LOOP, Endpoint
from ictp2p.torch_backend.engine import Engine, Step, in_parts
from ictp2p.torch_backend.errors import GroupClosed
from ictp2p.torch_backend.memory import Memory, octets
from ictp2p.torch_backend.messages import Messages
from ictp2p.torch_backend.options import Options
from ictp2p.torch_backend.overloads import ONE, SPLIT, TWO, overloaded
from ictp2p.torch_backend.reductions import Reduction
from ictp2p.torch_backend.refusals import Refusable
from ictp2p.torch_backend.shapes import cut, expect, fits, member, split
from ictp2p.torch_backend.work import GroupWork
from ictp2p.types import PeerId
from ictp2p.uncompiled import uncompiled

_c10d: Any = torch.distributed.distributed_c10d
"""Untyped: torch's stubs lack half of it, and overload the rest for callers from C++."""

Tensors: TypeAlias = Sequence[Tensor]


def create(given: Any, options: object = None) -> ProcessGroup:
    """Make a group as torch's registry asks for it."""
    return ProcessGroup(given.store, given.group_rank, given.group_size, given.timeout, options)


@uncompiled
class ProcessGroup(DescribedGroup):
    """One rank's side of a group.

    Args:
        store: where the ranks meet, prefixed for this group.
        rank: ours.
        size: how many there are.
        timeout: of each call, and of meeting.
        options: an `Options`, or None.

    Raises:
        RanksMissing: not all ranks came.
        RankRefused: one of them does not know the token (`SizeRefused`: was told another number of ranks).
        CardRefused: what stands in the store is of no rank.
        VersionRefused: a rank has another version of this backend.
    """

    def __init__(self, store: Any, rank: int, size: int, timeout: timedelta, options: object = None) -> None:
        super().__init__(rank, size, timeout)
        self._chosen = Options.of(options, store=store)
        self._loop = LOOP.enter()
        self._calls = Calls(self._loop)
        self._is_whole = False
        try:
            self._meet(store)
        except BaseException:
            self.shutdown()
            raise

    @property
    def options(self) -> Options:
        """What was chosen, by the caller and the environment."""
        return self._chosen

    def _meet(self, store: Any) -> None:
        """Tell the others where we are, learn where they are, and wait until all know it."""
        seconds = self._timeout.total_seconds()
        mesh = Mesh.from_token(self._chosen.token) if self._chosen.token else None
        stall = min(self._chosen.stall, seconds)
        self._endpoint = self._loop.call(
            lambda: Endpoint(self._chosen, mesh, stall, self._calls.under_way, self._lost, self._met)
        )
        mine = self._loop.run(lambda: self._endpoint.listen(self._size))
        meet(store, self._rank, mine, mesh, seconds, self._know)

    def _know(self, cards: list[Card]) -> None:
        """Take the ranks' cards. No rank dials another before all have read the same."""
        self._loop.call(lambda: self._endpoint.know(cards))
        names = [card.peer for card in cards]
        self._engine = Engine(self._endpoint.bulk, names, self._rank, cards[0].nonce)
        self._messages = Messages(self._engine)
        self._calls.peers = names  # from now on the loop may tell of ranks that come and go

    def shutdown(self) -> None:
        """Say goodbye and end. What is under way fails with `GroupClosed`. Twice is once; a fork ends nothing."""
        if not self._calls.close():
            return
        try:
            if hasattr(self, "_endpoint"):
                with contextlib.suppress(GroupClosed):  # the interpreter ends, and has ended the loop already
                    self._loop.run(self._end)
        finally:
            LOOP.leave()

    abort = shutdown

    async def _end(self) -> None:
        self._calls.cancel()
        await self._endpoint.close()

    # ------------------------------------------------------------ reductions

    @overloaded(_c10d.AllreduceOptions, ONE, "op", "timeout")
    def allreduce(self, tensors: Tensors, opts: Any) -> GroupWork:
        """Reduce over all ranks, in place, to the same bits everywhere."""
        return self.allreduce_coalesced(tensors, opts)

    def allreduce_coalesced(self, tensors: Tensors, opts: Any = None) -> GroupWork:
        """Reduce several tensors as one; those of one type are one vector."""
        opts = opts or _c10d.AllreduceOptions()
        with self._call("all_reduce", opts) as step:
            memory, lists = Memory(), dict[torch.dtype, list[Tensor]]()
            for tensor in tensors:
                lists.setdefault(tensor.dtype, []).append(tensor)
            kinds = [Reduction(opts.reduceOp, dtype) for dtype in lists]
            vectors = [
                [reduction.view(memory.update(tensor)) for tensor in alike]
                for reduction, alike in zip(kinds, lists.values(), strict=True)
            ]
            for reduction, flat in zip(kinds, vectors, strict=True):  # nothing is refused from here on
                if reduction.factor is not None:
                    products = [reduction.contribution(part) for part in flat]
                    for part, product in zip(flat, products, strict=True):  # all at once: they may share memory
                        part.copy_(product)
            parts = [
                (part, partial(self._engine.all_reduce, part, flat, kind.op))
                for part, flat, kind in zip(in_parts(step, lists), vectors, kinds, strict=True)
            ]
            return self._begin(step, lambda: self._engine.one_by_one(step, parts), memory, tensors)

    @overloaded(_c10d.ReduceOptions, ONE, "root", "op", "timeout")
    def reduce(self, tensors: Tensors, opts: Any) -> GroupWork:
        """Reduce to one rank, in place there; the others' tensors stay as they are."""
        with self._call("reduce", opts) as step:
            (tensor,) = tensors
            root = member(opts.rootRank, self._size, "reduce")
            reduction, memory = Reduction(opts.reduceOp, tensor.dtype), Memory()
            flat = reduction.view(memory.update(tensor) if root == self._rank else memory.read(tensor))
            brought, outputs = reduction.contribution(flat), [flat] if root == self._rank else []
            return self._begin(
                step, lambda: self._engine.reduce(step, [brought], outputs, root, reduction.op), memory, tensors
            )

    @overloaded(_c10d.ReduceScatterOptions, TWO, "op", "timeout")
    def reduce_scatter(self, outputs: Tensors, inputs: Sequence[Tensors], opts: Any) -> GroupWork:
        """Reduce a list of tensors per output; rank n gets the n-th of it."""
        with self._call("reduce_scatter", opts) as step:
            memory = Memory()
            vectors = [[memory.read(part) for part in each] for each in inputs]
            return self._reduce_scatter(step, memory, outputs, vectors, opts.reduceOp)

    def reduce_scatter_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> GroupWork:
        """Reduce several tensors; each rank gets an equal part of each."""
        opts = opts or _c10d.ReduceScatterOptions()
        with self._call("reduce_scatter", opts) as step:
            memory = Memory()
            vectors = [
                split(memory.read(whole), out.numel(), self._size, "reduce_scatter_tensor")
                for whole, out in zip(inputs, outputs, strict=True)
            ]
            return self._reduce_scatter(step, memory, outputs, vectors, opts.reduceOp)

    def reduce_scatter_single(self, outputTensor: Tensor, inputTensor: Tensor, opts: Any = None) -> GroupWork:
        """Reduce a tensor; each rank gets an equal part."""
        return self.reduce_scatter_single_coalesced([outputTensor], [inputTensor], opts)

    def _reduce_scatter(
        self, step: Step, memory: Memory, outputs: Tensors, vectors: Sequence[Tensors], operation: Any
    ) -> GroupWork:
        for parts, out in zip(vectors, outputs, strict=True):
            expect(self._size, len(parts), "tensors to scatter")
            fits(out, parts[self._rank], "reduce_scatter")
        reductions = {out.dtype: Reduction(operation, out.dtype) for out in outputs}
        kinds = [reductions[out.dtype] for out in outputs]
        brought = [
            [kind.contribution(kind.view(part)) for part in vector] for kind, vector in zip(kinds, vectors, strict=True)
        ]
        own = [parts[self._rank] for parts in brought]
        others = [part for parts in brought for rank, part in enumerate(parts) if rank != self._rank]
        places = [kind.view(memory.write(out)) for kind, out in zip(kinds, outputs, strict=True)]
        results, works = memory.apart(places, others, own), []
        for part, reduction in zip(in_parts(step, reductions), reductions.values(), strict=True):
            alike = [number for number, kind in enumerate(kinds) if kind is reduction]
            inputs, reduced = [brought[n] for n in alike], [results[n] for n in alike]
            works.append((part, partial(self._engine.reduce_scatter, part, inputs, reduced, reduction.op)))
        return self._begin(step, lambda: self._engine.one_by_one(step, works), memory, outputs)

    # ------------------------------------------------------------ copies

    @overloaded(_c10d.BroadcastOptions, ONE, "root", "timeout")
    def broadcast(self, tensors: Tensors, opts: Any) -> GroupWork:
        """Copy one rank's tensors to all."""
        with self._call("broadcast", opts) as step:
            memory, root = Memory(), member(opts.rootRank, self._size, "broadcast")
            place = memory.read if root == self._rank else memory.write
            flat = [octets(place(tensor)) for tensor in tensors]
            return self._begin(step, lambda: self._engine.broadcast(step, flat, root), memory, tensors)

    @overloaded(_c10d.AllgatherOptions, TWO, "timeout")
    def allgather(self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any) -> GroupWork:
        """Collect every rank's tensors, one list of results for each tensor that is brought."""
        with self._gathering(opts) as step:
            return self._all_gather_lists(step, outputs, inputs)

    def allgather_coalesced(self, output_lists: Sequence[Tensors], input_list: Tensors, opts: Any = None) -> GroupWork:
        """Collect every rank's list of tensors: `output_lists[n]` is the list of rank n."""
        with self._gathering(opts) as step:
            return self._all_gather_lists(step, [list(each) for each in zip(*output_lists, strict=True)], input_list)

    def all_gather_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> GroupWork:
        """Collect several tensors, each into one that holds all ranks' parts in order."""
        with self._gathering(opts) as step:
            memory = Memory()
            places = [
                split(memory.write(whole), part.numel(), self._size, "all_gather_into_tensor")
                for whole, part in zip(outputs, inputs, strict=True)
            ]
            return self._all_gather(step, memory, places, inputs, outputs)

    def all_gather_single(self, output: Tensor, input: Tensor, opts: Any = None) -> GroupWork:
        """Collect every rank's tensor into one that holds all in order."""
        return self.all_gather_single_coalesced([output], [input], opts)

    def _gathering(self, opts: Any) -> Refusable:
        return self._call("all_gather", opts or _c10d.AllgatherOptions())

    def _all_gather_lists(self, step: Step, outputs: Sequence[Tensors], inputs: Tensors) -> GroupWork:
        memory = Memory()
        places = [[memory.write(result) for result in results] for results in outputs]
        return self._all_gather(step, memory, places, inputs, [tensor for each in outputs for tensor in each])

    def _all_gather(
        self, step: Step, memory: Memory, places: Sequence[Tensors], inputs: Tensors, results: Tensors
    ) -> GroupWork:
        brought = [memory.read(tensor) for tensor in inputs]
        for parts, mine in zip(places, brought, strict=True):
            expect(self._size, len(parts), "tensors to gather into")
            fits(parts[self._rank], mine, "all_gather")
        places, brought = [[octets(part) for part in each] for each in places], [octets(mine) for mine in brought]
        own = memory.apart([parts[self._rank] for parts in places], [], brought)
        for place, mine in zip(own, brought, strict=True):
            place.copy_(mine)
        parts = [
            own[n] if rank == self._rank else part for n, each in enumerate(places) for rank, part in enumerate(each)
        ]
        return self._begin(step, lambda: self._engine.all_gather(step, parts), memory, results)

    @overloaded(_c10d.GatherOptions, TWO, "root", "timeout")
    def gather(self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any) -> GroupWork:
        """Collect every rank's tensor at one rank."""
        with self._call("gather", opts) as step:
            memory, root, (tensor,) = Memory(), member(opts.rootRank, self._size, "gather"), inputs
            brought, incoming = memory.read(tensor), dict[int, Tensor]()
            mine = octets(brought)
            if root == self._rank:
                (results,) = outputs
                expect(self._size, len(results), "tensors to gather into")
                places = [memory.write(result) for result in results]
                fits(places[root], brought, "gather")
                incoming = dict(enumerate(map(octets, places)))
                (incoming[root],) = memory.apart([incoming[root]], [], [mine])
            results, nbytes = outputs[0] if outputs else [], self._size * mine.nbytes
            return self._begin(
                step, lambda: self._engine.exchange(step, {root: mine}, incoming), memory, results, nbytes
            )

    @overloaded(_c10d.ScatterOptions, TWO, "root", "timeout")
    def scatter(self, outputs: Tensors, inputs: Sequence[Tensors], opts: Any) -> GroupWork:
        """Give each rank its tensor of one rank's list."""
        with self._call("scatter", opts) as step:
            memory, root, (tensor,) = Memory(), member(opts.rootRank, self._size, "scatter"), outputs
            place, outgoing = memory.write(tensor), dict[int, Tensor]()
            mine = octets(place)
            if root == self._rank:
                (brought,) = inputs
                expect(self._size, len(brought), "tensors to scatter")
                parts = [memory.read(part) for part in brought]
                fits(place, parts[root], "scatter")
                outgoing = dict(enumerate(map(octets, parts)))
                others = [part for rank, part in outgoing.items() if rank != root]
                (mine,) = memory.apart([mine], others, [outgoing[root]])
            nbytes = self._size * mine.nbytes
            return self._begin(
                step, lambda: self._engine.exchange(step, outgoing, {root: mine}), memory, outputs, nbytes
            )

    def alltoall(self, output_tensors: Tensors, input_tensors: Tensors, opts: Any = None) -> GroupWork:
        """Give tensor n to rank n, and get one from each."""
        with self._call("all_to_all", opts or _c10d.AllToAllOptions()) as step:
            memory = Memory()
            incoming = [memory.write(out) for out in output_tensors]
            outgoing = [memory.read(part) for part in input_tensors]
            return self._all_to_all(step, memory, incoming, outgoing, output_tensors)

    @overloaded(_c10d.AllToAllOptions, SPLIT, "timeout")
    def all_to_all_single(
        self, output: Tensor, tensor: Tensor, incoming: Sequence[int], outgoing: Sequence[int], opts: Any
    ) -> GroupWork:
        """Cut a tensor along its first dimension, give part n to rank n, and line up what comes.

        Args:
            output: where it lines up.
            tensor: what is cut.
            incoming: rows of the output per rank; none: equal parts.
            outgoing: rows of the input per rank; none: equal parts.
            opts: torch's.
        """
        with self._call("all_to_all", opts) as step:
            memory = Memory()
            places = cut(memory.write(output), output.shape, incoming, self._size)
            parts = cut(memory.read(tensor), tensor.shape, outgoing, self._size)
            return self._all_to_all(step, memory, places, parts, [output])

    def _all_to_all(self, step: Step, memory: Memory, places: Tensors, parts: Tensors, results: Tensors) -> GroupWork:
        expect(self._size, len(parts), "tensors to send")
        expect(self._size, len(places), "tensors to receive")
        fits(places[self._rank], parts[self._rank], "all_to_all")
        others = [*range(self._rank), *range(self._rank + 1, self._size)]
        order = [self._rank, *others]
        apart = memory.apart([places[n] for n in order], [parts[n] for n in others], [parts[self._rank]])
        outgoing = dict(enumerate(map(octets, parts)))
        incoming = {n: octets(place) for n, place in zip(order, apart, strict=True)}
        return self._begin(step, lambda: self._engine.exchange(step, outgoing, incoming), memory, results)

    # ------------------------------------------------------------ messages

    def send(self, tensors: Tensors, dstRank: int, tag: int) -> GroupWork:
        """Send a tensor to a rank."""
        (tensor,), memory, timeout = tensors, Memory(), self._timeout.total_seconds()
        member(dstRank, self._size, "send")
        flat = octets(memory.read(tensor))
        return self._pass_on(
            f"send to rank {dstRank}", lambda: self._messages.send(flat, dstRank, tag, timeout), memory, tensors
        )

    def recv(self, tensors: Tensors, srcRank: int, tag: int) -> GroupWork:
        """Receive a tensor from a rank."""
        return self._receive(tensors, member(srcRank, self._size, "recv"), tag, f"receive from rank {srcRank}")

    def recv_anysource(self, tensors: Tensors, tag: int) -> GroupWork:
        """Receive a tensor from whichever rank sends first."""
        return self._receive(tensors, None, tag, "receive from any rank")

    def _receive(self, tensors: Tensors, source: int | None, tag: int, name: str) -> GroupWork:
        (tensor,), memory, timeout = tensors, Memory(), self._timeout.total_seconds()
        flat = octets(memory.write(tensor))
        return self._pass_on(name, lambda: self._messages.receive(flat, source, tag, timeout), memory, tensors)

    @overloaded(_c10d.BarrierOptions, (), "timeout")
    def barrier(self, opts: Any) -> GroupWork:
        """Wait for every rank."""
        with self._call("barrier", opts) as step:
            return self._begin(step, lambda: self._engine.barrier(step), Memory(), [])

    def monitored_barrier(self, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None:
        """Wait for every rank; the error names all that did not come, whatever `wait_all_ranks`."""
        self.barrier(timeout=timeout).wait()

    # The names that torch had before, and still calls from C++.
    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
    alltoall_base = all_to_all_single

    # ------------------------------------------------------------ running

    def _call(self, kind: str, opts: Any) -> Refusable:
        """Number a collective. All are in one line, as torch has it."""
        self._check_whole()
        given = opts.timeout
        timeout = given if given > timedelta(0) else self._timeout
        step = Step(kind, self._calls.number(kind), timeout.total_seconds())
        return Refusable(self._loop, self._engine, step)

    def _begin(
        self, step: Step, start: Start, memory: Memory, results: Tensors, nbytes: int | None = None
    ) -> GroupWork:
        """Begin a collective; `nbytes` is what it moves if ranks would not all take it for the same."""
        return self._calls.begin(
            step.kind,
            self._name,
            start,
            memory,
            results,
            number=step.number,
            nbytes=memory.nbytes if nbytes is None else nbytes,
            patience=self._timeout.total_seconds(),
            failed=partial(self._engine.give_up, step),
        )

    def _pass_on(self, name: str, start: Start, memory: Memory, results: Tensors) -> GroupWork:
        """Begin to send or receive a message: of these there is no order that all ranks have in common."""
        self._check_whole()
        return self._calls.begin(name, self._name, start, memory, results)

    def _check_whole(self) -> None:
        """See that no other backend was asked for beside us: torch drops it without a word, and tells us afterwards.

        Raises:
            ConfigError: one was.
        """
        if self._is_whole:
            return
        config = str(_c10d._world.pg_backend_config.get(self, self.name()))
        if {each.rpartition(":")[2] for each in config.split(",")} != {self.name()}:
            raise ConfigError(f"backend {config!r} is not possible: {self.name()} is for all devices or for none")
        self._is_whole = True

    def _lost(self, peer: PeerId, error: IctError, polite: bool) -> None:
        if peer in self._calls.peers:
            self._messages.lost(self._calls.peers.index(peer), error, polite)

    def _met(self, peer: PeerId) -> None:
        if peer in self._calls.peers:
            self._messages.met(self._calls.peers.index(peer))
