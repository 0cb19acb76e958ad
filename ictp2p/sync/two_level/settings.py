"""What a policy is told of its rounds, checked before anything runs.

An option that cannot be is named with its value where it was given: on a hundred machines the first round is too late.
What comes out is Python's own (`options`): NumPy's numbers have another name, and some of what packs them refuses it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from ictp2p.errors import ConfigError
from ictp2p.sync import options
from ictp2p.sync.two_level.landing import Late
from ictp2p.sync.two_level.patience import WithoutQuorum
from ictp2p.sync.values import MOST_SPREAD

Frozen = Literal["same", "own"]
"""Parameters that nobody trains: the `same` everywhere, or each cluster's `own` (a base model in another precision, a
teacher that follows the model)."""
Fragments = int | Sequence[Collection[str]]
"""Into how many parts a model is divided, or which modules are in each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The options of a policy that need neither its model nor its peer; `Policy` says what each means.

    Raises:
        ConfigError: one of them cannot be.
    """

    fragments: Fragments
    overlap: int
    codec: str
    without_quorum: WithoutQuorum
    most_skipped: int
    quorum: float
    spread: float
    late: Late
    frozen: Frozen
    resume: bool
    samples: bool
    """Whether a sampler leases what is trained."""

    def __post_init__(self) -> None:
        for name, choices in (("without_quorum", WithoutQuorum), ("late", Late), ("frozen", Frozen)):
            _check_choice(name, getattr(self, name), choices)
        if self.late == "drop" and self.samples:
            raise ConfigError("late 'drop' would lose samples, which a sampler must not: 'keep' or 'discount'")
        options.codec(self.codec)
        self._set("most_skipped", options.whole("most_skipped", self.most_skipped, 0))
        self._set("resume", options.flag("resume", self.resume))
        self._set("overlap", options.plain(self.overlap))
        self._set("fragments", _fragments(self.fragments))
        self._set("quorum", options.number("quorum", self.quorum, lambda share: 0.0 < share <= 1.0, "in (0, 1]"))
        words = f"from 0 to {MOST_SPREAD:g}"
        self._set("spread", options.number("spread", self.spread, lambda width: 0.0 <= width <= MOST_SPREAD, words))

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    @property
    def parts(self) -> int:
        """How many fragments there are."""
        return self.fragments if isinstance(self.fragments, int) else len(self.fragments)


def _check_choice(name: str, value: object, choices: object) -> None:
    if value not in get_args(choices):
        raise ConfigError(f"{name} {value!r} is none of {', '.join(get_args(choices))}")


def _fragments(given: object) -> Fragments:
    given = options.plain(given)
    if not isinstance(given, int | list | tuple) or isinstance(given, bool):
        raise ConfigError(f"fragments {given!r} is neither a whole number nor a list of the modules in each")
    return given
