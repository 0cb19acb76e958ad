"""A round under way while training goes on: its conversation with the mesh, in a thread of its own at the leader.

What a round needs was captured before, so nothing that training changes is read here. The next state is computed
here too, beside the committed one, and voted for; but nothing is applied, to the model or to the agreed state, until
the training thread lands it. A round that nobody waits for any more is withdrawn: the mesh goes on without it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from ictp2p.sync.mesh import Mesh, RoundRequest, RoundResult

IDLE = 0.5
"""Seconds between two signs of life while a landing waits."""


class Withdrawn(Exception):
    """The round is not waited for any more."""


class Flight:
    """One contribution on its way."""

    def __init__(self, peer: Mesh, request: RoundRequest) -> None:
        """Bring it to the mesh.

        Args:
            peer: the connection to the mesh.
            request: the contribution. Its `idle` is replaced, its other callbacks are called in the flight's thread.
        """
        self._withdrawn = False
        self._result: RoundResult | BaseException | None = None
        asked = dataclasses.replace(request, idle=self._check)  # not kept: it knows us, and in a cycle tensors stay
        self._thread = peer.background(lambda: self._run(peer, asked))

    @property
    def over(self) -> bool:
        """Whether it has ended, however."""
        return not self._thread.is_alive()

    def wait(self, idle: Callable[[], None], every: float = IDLE) -> RoundResult:
        """Wait for the decision; raises whatever `Mesh.outer_round` raised.

        Args:
            idle: called now and then meanwhile.
            every: seconds between two calls.
        """
        while not self.over:
            self._thread.join(every)
            idle()
        result, self._result = self._result, None
        assert result is not None, "it is waited for once"
        if isinstance(result, RoundResult):
            return result
        try:
            raise result
        finally:
            del result  # an error knows its frames, and those this and the request: in a cycle tensors stay

    def withdraw(self) -> None:
        """Give it up; once this returns, nothing touches the tensors of the request any more."""
        self._withdrawn = True
        self._thread.join()
        self._result = None

    def _run(self, peer: Mesh, request: RoundRequest) -> None:
        try:
            self._result = peer.outer_round(request)
        except BaseException as error:  # raised again where it is waited for
            self._result = error

    def _check(self) -> None:
        if self._withdrawn:
            raise Withdrawn
