"""A round under way while training goes on: its conversation with the mesh, in a thread of its own at the leader.

What a round needs was captured before, so nothing that training changes is read here. The next state is computed
here too, beside the committed one, and voted for; but nothing is applied, to the model or to the agreed state, until
the training thread lands it. A round that nobody waits for any more is withdrawn: the mesh goes on without it.

Whether it still can is known to that thread alone. Once an attempt with the contribution has begun it may be committed,
and who turned away would hold what is brought next for what is agreed on already.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from ictp2p.sync.mesh import Mesh, RoundRequest, RoundResult
from ictp2p.sync.values import Participant

IDLE = 0.5
"""Seconds between two signs of life while a landing waits."""
_SOON = 0.02
"""Seconds between two looks at whether a round has begun."""


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
        self._withdrawn = self._needless = self._begun = False
        self.told = False
        """Whether what came of it was given by `wait`."""
        self._result: RoundResult | BaseException | None = None
        restarted = request.restarted

        def begun(attempt: int, parts: Sequence[Participant]) -> None:
            self._begun = True
            restarted(attempt, parts)

        # Not kept: it knows us, and in a cycle tensors stay.
        asked = dataclasses.replace(request, idle=self._check, restarted=begun)
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
        self._thread.join(every)
        while not self.over:
            idle()
            self._thread.join(every)
        self.told = True
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

    def give_up(self) -> bool:
        """Withdraw it if it has not begun, and say whether that was so; else it has still to be waited for."""
        self._needless = True
        while not (self.over or self._begun):
            self._thread.join(_SOON)
        return isinstance(self._result, Withdrawn)

    def _run(self, peer: Mesh, request: RoundRequest) -> None:
        try:
            self._result = peer.outer_round(request)
        except BaseException as error:  # raised again where it is waited for
            self._result = error

    def _check(self) -> None:
        if self._withdrawn or (self._needless and not self._begun):
            raise Withdrawn
