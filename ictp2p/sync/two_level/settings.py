"""The options of policies: what each means, what it is if not given, and what it cannot be.

They are said to a policy by keyword, beside its model and its optimizers. Of an option all is in one place, a field of
`Settings`. Which options a policy takes is in its signature: kinds of options (`Common` and those after it) are put
together there to what this one has no value of its own for, so that type checkers and editors know them by name.

An option that cannot be is named with its value where it was given: on a hundred machines the first round is too late.
What comes out is Python's own (`sync.options`): NumPy's numbers have another name, and some of what packs them refuses
it. What only a model can tell is left to whoever has one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, fields
from inspect import signature
from typing import Any, Literal, TypedDict, get_args

from ictp2p.errors import ConfigError, nearest, shown
from ictp2p.sync import options
from ictp2p.sync.cluster.replica import Stateful
from ictp2p.sync.optimizers.outer_schedule import OuterSchedule
from ictp2p.sync.samples.sampler import ElasticSampler
from ictp2p.sync.state.agreed import Agreed
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
    """The options of a policy.

    Raises:
        ConfigError: one of them cannot be.
    """

    fragments: Fragments = 1
    """Into how many parts, or which, the model is divided; a round carries one of them."""
    overlap: int = 0
    """Inner steps that training goes on while a round is under way, at most those between two rounds (tau of Douillard
    et al. 2025)."""
    mix: float = 0.0
    """How much of the local value stays when the result lands, in [0, 1) (their alpha)."""
    codec: str = "none"
    """What the pseudo-gradients are encoded with on the wire: `none`, `bfloat16`, `float16`, `int8`, `e3m0` (all
    accumulate in float32), or `auto` for the fastest of none, bfloat16 and int8 on these links."""
    without_quorum: WithoutQuorum = "wait"
    """What to do while the mesh cannot decide: `wait`, `continue` with inner steps, or `stop` with an error
    (`patience.WithoutQuorum`)."""
    most_skipped: int = 4
    """Outer rounds in a row that `without_quorum="continue"` may skip; then it waits as well."""
    quorum: float = 1.0
    """Share of the clusters that train, in (0, 1], that is enough for a round. With less than all of them the others
    are waited for until `spread` is over, instead of the straggler timeout."""
    spread: float = 3.0
    """By how many median absolute deviations of the last rounds' arrivals a cluster may come later than the median one,
    before a round that has its quorum begins without it."""
    late: Late = "keep"
    """What becomes of training that missed its round: `keep` brings it to the next one, `discount` does so with less
    weight, the more rounds it missed (Liu et al. 2024), and `drop` forgets it."""
    frozen: Frozen = "same"
    """Whether the parameters that require no gradients must be the `same` everywhere, as they are when the policy is
    entered, or may be each cluster's `own`."""
    resume: bool = False
    """The model was loaded from a checkpoint of this training: if the mesh has lost its state and nobody holds any, it
    may go on from this one. Never for fresh weights."""
    carry: Sequence[Stateful] = ()
    """Further objects that a newcomer to the cluster must take over (a learning-rate schedule, say)."""
    agenda: Sequence[Agreed] = ()
    """What else is agreed on with each round, and kept in the global state."""
    sampler: ElasticSampler | None = None
    """Leases the samples that are trained on; what is trained without it counts for nothing."""
    outer_schedule: OuterSchedule | None = None
    """The factor of the outer learning rates in the step from a state that has so many rounds behind it
    (`Policy.rounds`), the same function everywhere; None for always 1."""
    within: Any = None
    """Of a sharded model (FSDP2, tensor parallelism) the process group, or device mesh, of this cluster's ranks among
    which it is; each of them has a peer in a mesh of its own (`shard_token`)."""

    def __post_init__(self) -> None:
        options.each_has("agenda", self.agenda, options.AGREED)
        options.each_has("carry", self.carry, options.STATEFUL)
        if self.sampler is not None:
            options.kind("sampler", self.sampler, ElasticSampler)
        for name, choices in (("without_quorum", WithoutQuorum), ("late", Late), ("frozen", Frozen)):
            options.one_of(name, getattr(self, name), get_args(choices))
        if self.late == "drop" and self.sampler is not None:
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

    def describe(self) -> list[tuple[str, str]]:
        """What all must have given alike, in words, but for what the model's own description says."""
        return [("overlap", str(self.overlap)), ("codec", self.codec), ("late", self.late)]


class Common(TypedDict, total=False):
    """What every policy takes."""

    without_quorum: WithoutQuorum
    most_skipped: int
    late: Late
    resume: bool
    carry: Sequence[Stateful]
    within: Any


class Divided(TypedDict, total=False):
    """Which part of the model a round carries."""

    fragments: Fragments


class Overlapping(TypedDict, total=False):
    """How training goes on under a round."""

    overlap: int
    mix: float


class Coded(TypedDict, total=False):
    """What a round's bytes are."""

    codec: str


class Awaited(TypedDict, total=False):
    """Who is waited for."""

    quorum: float
    spread: float


class Stepped(TypedDict, total=False):
    """The outer step."""

    outer_schedule: OuterSchedule | None


class Decided(TypedDict, total=False):
    """What is decided with each round."""

    agenda: Sequence[Agreed]
    sampler: ElasticSampler | None


class Compared(TypedDict, total=False):
    """What all must have alike."""

    frozen: Frozen


class AllOptions(Common, Divided, Overlapping, Coded, Awaited, Stepped, Decided, Compared, total=False):
    """All that there are."""


def check_names(policy: type, given: Iterable[str]) -> None:
    """Refuse an option that there is not, in the name of the policy that was called: `Settings` was not, by anybody.

    Raises:
        ConfigError: no policy takes one of them; it is named, and so is the nearest of what may have been meant.
    """
    known = [field.name for field in fields(Settings)]
    strange = next((name for name in given if name not in known), None)
    if strange is not None:
        near = nearest(strange, [*signature(policy).parameters, *known])
        meant = f": {near} may be meant" if near else ""
        raise ConfigError(f"{policy.__name__} takes no {shown(strange)}{meant}")


def _fragments(given: object) -> Fragments:
    given = options.plain(given)
    if not isinstance(given, int | list | tuple) or isinstance(given, bool):
        raise ConfigError(f"fragments {shown(given)} is neither a whole number nor a list of the modules in each")
    return given
