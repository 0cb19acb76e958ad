"""What training starts from: the model as it is when the policy is entered, or a checkpoint of it.

Between making a policy and entering it a program may load weights, move the model, or do neither. What the model holds
when the policy is entered is therefore what a founder brings. A checkpoint is the other way round: it *is* the agreed
state, so what a program writes over it afterwards would reach the mesh as training, and is refused.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

import torch

from ictp2p.errors import ConfigError, LocalProtocolError
from ictp2p.sync.cluster.replica import Replica
from ictp2p.sync.model import contents
from ictp2p.sync.model.weights import Weights
from ictp2p.sync.optimizers.copies import following
from ictp2p.sync.state import resuming
from ictp2p.sync.state.checkpoint import Checkpoint


class Beginning:
    """A model before its policy is entered.

    Args:
        model: what is trained.
        inner: its optimizer, whose copies of the parameters follow what is loaded.
        weights: the model beside the global state.
        compares: whether what nobody trains must be the same everywhere.
    """

    def __init__(self, model: torch.nn.Module, inner: torch.optim.Optimizer, weights: Weights, compares: bool) -> None:
        self._model, self._inner, self._weights, self._compares = model, inner, weights, compares
        self._loaded: Checkpoint | None = None
        self._loaded_as: Mapping[str, bytes] = {}
        """What the model's parameters were then, by their digests."""
        self._half_loaded = False
        """Whether loading has failed in its midst, so that what is here is neither fresh nor what was saved."""

    def load(self, path: str | os.PathLike[str], replica: Replica, resumed: Callable[[], None]) -> None:
        """Take the state over from a file, and what only its cluster held.

        Args:
            path: the file.
            replica: takes what only its cluster held, if the file has that.
            resumed: called then; it may move the model.

        Raises:
            ConfigError: it is another training's; the first difference is named.
            StateError: it is no checkpoint, or damaged.
        """
        found = Checkpoint(path)
        local = found.local()
        self._weights.share(self._frozen())
        found.load(self._weights.state)
        self._half_loaded = True
        with following(self._inner):
            self._weights.restore()
        if local is not None:
            replica.load(*local)
            resumed()
        self._loaded_as = contents.digests(dict(self._model.named_parameters()))
        self._loaded, self._half_loaded = found, False

    def check(self) -> None:
        """See that there is something to begin from.

        Raises:
            LocalProtocolError: a checkpoint was loaded in part.
        """
        if self._half_loaded:
            raise LocalProtocolError(
                "a checkpoint was loaded in part before load() failed: make model, optimizer and policy anew"
            )

    def look(self) -> None:
        """Begin from the model as it is, or see that it is what was loaded: a difference would pass for training.

        Raises:
            ConfigError: something was written over a checkpoint.
        """
        if self._loaded is None:
            self._weights.share(self._frozen())
            return self._weights.take()
        now = contents.digests(dict(self._model.named_parameters()))
        changed = next((name for name, digest in self._loaded_as.items() if now.get(name) != digest), None)
        if changed is not None:
            raise ConfigError(
                f"parameter {changed!r} was changed after the checkpoint was loaded: what was written to it would be "
                "brought to the mesh as training. Load the checkpoint last, or none"
            )

    def recognize(self) -> None:
        """Hold what was loaded as the version that it is, if this very mesh has agreed on it."""
        if self._loaded is not None:
            resuming.recognize(self._loaded, self._weights.state)

    def given_up(self) -> str | None:
        """Say in words that the mesh has gone back to before what was loaded.

        Raises:
            StateError: it is not so far, and was founded without it.
        """
        return None if self._loaded is None else resuming.given_up(self._loaded, self._weights.state)

    def trained(self) -> int | None:
        """Give the steps of what training begins from: 0 for fresh weights, None for what another worker had."""
        state = self._weights.state
        if not state.counters["round"]:
            return 0
        return self._loaded.trained if self._loaded is not None and self._loaded.digest == state.contents else None

    def _frozen(self) -> list[tuple[str, str]]:
        """What all must have alike of what nobody trains."""
        trained, parameters = self._weights.trained, self._model.named_parameters()
        return contents.frozen({n: p for n, p in parameters if n not in trained}) if self._compares else []
