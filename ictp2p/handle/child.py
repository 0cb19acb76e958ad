"""The process that a peer lives in, beside its training program: `python -m ictp2p.handle.child DESCRIPTOR PARENT`.

It is started as a program of its own, not forked (threads and locks do not survive that) and not by `multiprocessing`
(which would import the user's script once more). It ends when the training program does, however that ends: its socket
is closed then, and where a fork of the training program keeps it open, the kernel kills this process (prctl(2),
PR_SET_PDEATHSIG). The others notice a death, which is the truth. Signals that go to all processes of a job are the
training program's to answer: SIGINT, SIGTERM, and those that schedulers send some time before it. It drains or closes
its peer, and this process leaves politely. Who does not answer them dies of them, and this process with it. SIGALRM is
each process's own, and SIGTSTP stops whom it is sent to, so these two do here what they always do. A terminal sends its
own, Ctrl-C and Ctrl-Z, to the training program alone, for this process is in a group of its own: while the program is
stopped, its peer lives on.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import socket
import sys
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

import msgspec
import torch

from ictp2p.async_peer import AsyncPeer
from ictp2p.collectives.group.rendezvous import open_store
from ictp2p.concurrency.loop_thread import new_loop
from ictp2p.handle import News, messages, news, to_peer, to_training
from ictp2p.handle.end import End
from ictp2p.handle.failures import packed, unpacked
from ictp2p.handle.memory import Regions
from ictp2p.handle.receiving import RemoteReceiver
from ictp2p.handle.service import PeerService
from ictp2p.machine import Notice
from ictp2p.runtime.reduction import Outcome, Reduction
from ictp2p.sync.rounds.restore import Held, Stock
from ictp2p.sync.state.global_state import GlobalState
from ictp2p.sync.state.manifest import read
from ictp2p.telemetry import Event

_PR_SET_PDEATHSIG = 1
_ANSWERED_BY_THE_PROGRAM = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
_BACKLOG = 64 << 20
"""Bytes that wait for a training program that does not listen, from which on events are dropped."""


class Child:
    """One peer, and the socket to its training program.

    Args:
        loop: where it runs.
        end: the socket, connected.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, end: socket.socket) -> None:
        self._loop = loop
        self._end = End(loop, end, self.heard, loop.stop)
        self._regions = Regions()
        self._tasks: dict[int, asyncio.Task[Any]] = {}
        self._questions: dict[int, asyncio.Future[msgspec.Raw]] = {}
        self._asked = 0
        self._facts = to_training.Facts()
        self._where: tuple[str, Mapping[str, str]] = ("INIT", {})
        self._stock = Stock()
        self._serves = False

    def heard(self, number: int, body: bytes) -> None:
        """Take a message."""
        self._take(number, to_peer.decode(body))

    def say(self, number: int, message: to_training.ToTraining) -> None:
        """Say something, after whatever has changed of what the training program may read without asking."""
        if not isinstance(message, to_training.Told | to_training.Progress | to_training.Take):
            self._tell_facts()
        self._end.send(messages.encode(number, message))

    def _tell_facts(self) -> None:
        if not hasattr(self, "peer") or not self.peer.assembled:
            return
        facts = self._seen()
        if facts != self._facts:
            self._facts = facts
            self._end.send(messages.encode(0, facts))

    def _seen(self) -> to_training.Facts:
        peer = self.peer
        clusters = len(peer.core.m.mesh.alive())
        address = str(peer.address)
        return to_training.Facts(peer.leader, clusters, address, peer.agreed_state, peer.lineage)

    # ------------------------------------------------------------ what the training program says

    def _take(self, number: int, message: to_peer.ToPeer) -> None:
        try:
            work = self._act(number, message)
        except Exception as error:
            self.say(number, to_training.Failed(packed(error)))
            return
        if asyncio.iscoroutine(work):
            self._tasks[number] = self._loop.create_task(self._finish(number, work))
        elif number and not isinstance(message, to_peer.Answered | to_peer.Refused | to_peer.Cancel):
            self.say(number, to_training.Reply(messages.raw(work)))

    async def _finish(self, number: int, work: Coroutine[Any, Any, Any]) -> None:
        try:
            reply: to_training.ToTraining = to_training.Reply(messages.raw(await work))
        except (Exception, asyncio.CancelledError) as error:
            reply = to_training.Failed(packed(error))
        del self._tasks[number]
        self.say(number, reply)

    def _act(self, number: int, message: to_peer.ToPeer) -> Any:
        """Do what is asked: what is to be answered, or a coroutine that gives it."""
        match message:
            case to_peer.Begin():
                return self._begin(message)
            case to_peer.Start():
                return self.service.start()
            case to_peer.Leave():
                return self.peer.leave()
            case to_peer.HandOver():
                return self.peer.hand_over()
            case to_peer.View(name=name):
                return self.service.view(name)
            case to_peer.Note(kind=kind, fields=fields):
                return self.peer.telemetry.event(kind, **fields)
            case to_peer.Where(state=state, inside=inside):
                self._where = state, inside
            case to_peer.Equip(device=device):
                return self.peer.equip(device)
            case to_peer.Wants(ready=ready, device=device, calls=calls):
                return self.service.wants(ready, device, calls)
            case to_peer.Boundary(step=step):
                return self.service.boundary(step)
            case to_peer.GroupFailed(generation=generation, breach=breach):
                return self.service.failed(generation, breach)
            case to_peer.Attends(stage=stage, generation=generation):
                return self.service.attends(stage, generation)
            case to_peer.SetTraining(training=training):
                return self.peer.set_training(training)
            case to_peer.Offer(digest=digest):
                return self.service.offer(digest)
            case to_peer.Waiting():
                return self.service.waiting()
            case to_peer.TakingPart():
                return self.service.taking_part()
            case to_peer.GiveUp():
                return self.peer.participation.closed()
            case to_peer.Cancel():
                if number in self._tasks:  # after its first step, else no line of it runs and nothing is answered
                    self._loop.call_soon(self._tasks[number].cancel)
            case to_peer.Holds(version=version, digest=digest, sealed=sealed):
                self._hold(Stock((version, digest), sealed))
            case to_peer.FetchState(ref=ref, own=own):
                return self.peer.fetch_state(ref, RemoteReceiver(self.ask, self.say, self._loop, number, own))
            case to_peer.Answered(value=value):
                self._resolve(number, value)
            case to_peer.Refused(failure=failure):
                self._resolve(number, unpacked(failure))
            case _:
                return self._act_on_tensors(number, message)
        return None

    def _act_on_tensors(self, number: int, message: to_peer.ToPeer) -> Any:
        match message:
            case to_peer.Map(region=region, size=size):
                return self._regions.map(region, size, self._end.descriptor())
            case to_peer.Unmap(region=region):
                return self._regions.unmap(region)
            case to_peer.Reduce():
                return self._reduce(number, message)
            case to_peer.HoldAnswer(digest=digest, result=result):
                return self.service.answers.hold(digest, self._regions.tensor(result))
            case to_peer.FetchAnswer(opened=opened, close=close, result=result):
                return self.service.answers.fetch(opened, close, self._regions.tensor(result))
            case to_peer.Post():
                body = self._regions.tensor(message.body)
                return self.service.messages.send(body, message.shapes, message.target, message.tag, message.timeout)
            case to_peer.Receive():
                return self._receive(message)

    def _begin(self, message: to_peer.Begin) -> str:
        torch.set_num_threads(1)  # the cores are the training's: see `concurrency.torch_threads`
        self.peer = AsyncPeer(message.config, open_store=open_store)
        self.peer.life = lambda: self._where
        self.peer.telemetry.subscribe(self._told)
        self.service = PeerService(self.peer)
        self.service.subscribe(self._news)
        self.peer.subscribe(self._noticed)
        return self.peer.id

    async def _receive(self, message: to_peer.Receive) -> None:
        room = self._regions.tensor(message.room)
        room.copy_(
            await self.service.messages.receive(len(room), message.shapes, message.source, message.tag, message.timeout)
        )

    # ------------------------------------------------------------ what is told

    def _told(self, event: Event) -> None:
        if self._end.backlog < _BACKLOG:
            self.say(0, to_training.Told(event.kind, dict(event.fields)))
        else:
            self.peer.telemetry.count("events_dropped")

    def _noticed(self, _notice: Notice) -> None:
        self._tell_facts()

    def _news(self, told: News) -> None:
        self.say(0, news.packed(told))

    # ------------------------------------------------------------ rounds

    async def _reduce(self, number: int, message: to_peer.Reduce) -> Outcome:
        async def finish() -> bytes:
            return msgspec.msgpack.decode(await self.ask(to_training.Complete(number)), type=bytes)

        async def holds(keys: Sequence[bytes]) -> dict[bytes, list[torch.Tensor]]:
            found = await self.ask(to_training.WantsModules(number, tuple(keys)))
            rows = msgspec.msgpack.decode(found, type=list[list[messages.TensorRef]])
            return {key: [self._regions.tensor(r) for r in refs] for key, refs in zip(keys, rows, strict=True)}

        try:
            work = Reduction(
                message.spec,
                [self._regions.tensor(ref) for ref in message.inputs],
                [self._regions.tensor(ref) for ref in message.outputs],
                weight=message.weight,
                base=message.base,
                finish=finish,
                progress=lambda start, stop: self.say(number, to_training.Progress(start, stop)),
                restarted=lambda attempt, parts: self.say(number, to_training.Restarted(attempt, tuple(parts))),
                note=message.note,
                holds=holds,
                patient=message.patient,
                slack=message.slack,
                newcomer=message.newcomer,
                among=message.among,
            )
            return await self.peer.reduce(work)
        finally:
            self.say(number, to_training.Over())

    # ------------------------------------------------------------ questions, and the state

    async def ask(self, question: to_training.ToTraining) -> msgspec.Raw:
        """Ask the training program; ends with an error of its, or with this process."""
        self._asked += 1
        number = self._asked
        self._questions[number] = self._loop.create_future()
        try:
            self.say(number, question)
            return await self._questions[number]
        finally:
            del self._questions[number]

    def _resolve(self, number: int, value: msgspec.Raw | Exception) -> None:
        waiting = self._questions.get(number)
        if waiting is None or waiting.done():
            return
        if isinstance(value, Exception):
            waiting.set_exception(value)
        else:
            waiting.set_result(value)

    def _hold(self, stock: Stock) -> None:
        self._stock = stock
        if not self._serves:
            self._serves = True
            self.peer.provide(self)

    def held(self) -> Held:
        """Of the training program's state; see `state_provider.Provider`."""
        return self._stock.held

    def sealed(self) -> bytes:
        """Of the training program's state."""
        return self._stock.sealed

    async def manifest(self, digest: bytes) -> bytes:
        """Of the training program's state."""
        return msgspec.msgpack.decode(await self.ask(to_training.WantsManifest(digest)), type=bytes)

    async def chunk(self, digest: bytes, index: int) -> bytes:
        """Of the training program's state."""
        return msgspec.msgpack.decode(await self.ask(to_training.WantsChunk(digest, index)), type=bytes)

    async def room(self) -> GlobalState:
        """Of what the training program's state consists of, as far as it has one."""
        manifest = read(await self.manifest(self._stock.held[1]))
        return GlobalState(manifest.entries, manifest.settings)


def main(descriptor: int, parent: int) -> None:
    """Serve the training program at the other end of a socket, until it hangs up."""
    for number in _ANSWERED_BY_THE_PROGRAM:
        signal.signal(number, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the kernel was told
        return
    loop = new_loop()
    asyncio.set_event_loop(loop)
    Child(loop, socket.socket(fileno=descriptor))
    loop.run_forever()
    os._exit(0)  # there is nobody to whom anything could still be owed; sockets and locks end with the process


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
