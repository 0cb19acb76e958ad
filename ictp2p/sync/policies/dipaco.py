"""DiPaCo's outer rounds: every cluster trains a path through a pool of modules, and shares each with who else holds it.

Douillard et al., "DiPaCo: Distributed Path Composition" (2024). No cluster holds the whole pool. In a round a module is
averaged over the clusters that hold it, by weight, and takes its outer step with a momentum of its own; nothing of it
goes to anybody else (`modules`). A module that nobody else holds stays: no byte of it travels, and its average is its
own pseudo-gradient. With one path for all this is `DiLoCo`, bit for bit.

Modules are the same if they have the same name and the same tensors. Which clusters hold one is said anew with each
round, so joins and deaths change it at the boundaries of rounds. A newcomer gets what others hold of its modules in
its first round, before the step that it takes with them; so does a cluster that missed one, and keeps what it trained.
If a leader dies after a round was committed and before its followers had the result, what the cluster had brought is
in the modules of the others, and is dropped here. If the only cluster that was in a round with a module is lost, the
others go on from what most rounds are in; one that was away, too, when it is back (`modules`).

As every cluster holds something else, the state is agreed on by what it was made of (`own`); `global_parameters()` and
`save` give this cluster's path. How samples are assigned to paths is up to the training loop.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any, Unpack

import torch
from torch import Tensor

from ictp2p.errors import ConfigError, shown
from ictp2p.sync.mesh import Mesh, Receiver
from ictp2p.sync.model.tensors import BUFFER
from ictp2p.sync.model.weights import Weights
from ictp2p.sync.optimizers.outer import OuterFactory
from ictp2p.sync.options import cluster, kind
from ictp2p.sync.pace import Pace
from ictp2p.sync.rounds.modules import NAME, Card, HeldModule, card_of, groups, key_of, room, sources, spans
from ictp2p.sync.state.agreed import Said
from ictp2p.sync.state.global_state import GlobalState
from ictp2p.sync.state.manifest import Entry
from ictp2p.sync.state.own import CHAIN, Name, PathState, chained
from ictp2p.sync.two_level.policy import Policy
from ictp2p.sync.two_level.settings import Awaited, Coded, Common, Overlapping, Stepped
from ictp2p.sync.values import LOOKS_ON, Participant
from ictp2p.types import ClusterId


class DiPaCoOptions(Common, Overlapping, Coded, Awaited, Stepped, total=False):
    """All but what is about the whole model, of which no cluster has it."""


class DiPaCo(Policy):
    """Train a path apart for `sync_every` inner steps, then average each module with the clusters that hold it.

    ```python
    model = torch.nn.ModuleDict({"embed": embed, "expert 3": expert, "head": head})  # this cluster's path
    with ictp2p.Peer(config) as peer, ictp2p.DiPaCo(peer, model, inner, sync_every=100) as policy:
        for batch in peer.steps(loader):
            ...
    ```
    """

    def __init__(
        self,
        peer: Mesh,
        model: torch.nn.Module,
        inner: torch.optim.Optimizer,
        outer: torch.optim.Optimizer | OuterFactory | None = None,
        sync_every: int | Pace = 100,
        modules: Sequence[str] | None = None,
        **options: Unpack[DiPaCoOptions],
    ) -> None:
        """Set it up.

        Args:
            peer: as for `Policy`.
            model: this cluster's path: its modules, under the names that they have everywhere.
            inner: as for `Policy`.
            outer: as for `Policy`; None for Nesterov SGD with learning rate 0.7 and momentum 0.9. Its state must have
                the dtype of the parameters.
            sync_every: inner steps between outer rounds, or an `AdaptivePace`.
            modules: names of the modules that are shared, each as one; None for those of the model's children that hold
                any of what is shared. What none of them holds is one more. At most 42 in all.
            options: see `Settings`; all but `fragments`, `agenda`, `sampler` and `frozen`: what is frozen in a path is
                its cluster's own.

        Raises:
            ConfigError: a value is out of range, or an optimizer does not fit.
        """
        given = [name for name in ("fragments", "sampler") if options.get(name) is not None]
        wrong = next((name for name in (*given, "agenda", "frozen") if name in options), None)
        if wrong is not None:
            raise ConfigError(
                f"DiPaCo takes no {wrong}, which is for a model that is the same in all clusters: each has a path"
            )
        kind("model", model, torch.nn.Module)
        if modules is not None and not _are_names(modules):
            raise ConfigError(f"modules {shown(modules)} is not a list of names")
        names = _children(model) if modules is None else list(modules)
        holdings = Holdings()
        arithmetic = partial(ModuleWeights, cluster=cluster(peer), modules=names, holdings=holdings)
        super().__init__(
            peer,
            model,
            inner,
            outer,
            sync_every,
            name="dipaco",
            grouping="modules",
            frozen="own",
            agenda=[holdings],
            arithmetic=arithmetic,
            **options,
        )


def _children(model: torch.nn.Module) -> list[str]:
    """Those in which there is something to train or to average; what two of them share is the first one's."""
    tensors = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    tensors += [name for name, buffer in model.named_buffers() if buffer.is_floating_point()]
    return [name for name, _ in model.named_children() if any(_inside(tensor, name) for tensor in tensors)]


def _are_names(values: object) -> bool:
    return (
        isinstance(values, Collection)
        and not isinstance(values, str | Tensor)
        and len(values) > 0
        and all(isinstance(value, str) for value in values)
    )


class Holdings:
    """What a cluster holds, said with each round (`agreed.Agreed`). Nothing is decided by it but the groups."""

    name = NAME
    entries: tuple[Entry, ...] = ()
    counters: Mapping[str, int] = {}

    def __init__(self) -> None:
        """Hold nothing yet."""
        self.card = Card(True, ())

    def describe(self) -> Sequence[tuple[str, str]]:
        """Clusters may hold what they like."""
        return []

    def note(self) -> bytes:
        """What this cluster holds."""
        return self.card.encode()

    def decide(self, counters: dict[str, int], tensors: Mapping[str, Tensor], said: Sequence[Said]) -> None:
        """Nothing."""

    def landed(self, counters: Mapping[str, int], tensors: Mapping[str, Tensor]) -> None:
        """Nothing."""


class ModuleWeights(Weights):
    """`Weights` of a path: modules that are averaged each over clusters of its own."""

    in_parts = False

    def __init__(self, *args: Any, cluster: ClusterId, modules: Sequence[str], holdings: Holdings) -> None:
        """As `Weights`, with what `DiPaCo` has besides."""
        super().__init__(*args)
        self._cluster, self._holdings = cluster, holdings
        self._modules = self._keyed(modules)
        self.fragments = (tuple(name for names in self._modules.values() for name in names),)
        held = tuple(
            HeldModule(key, sum(self._tensors[n].numel() for n in names), sum(t.numel() for t in self.holds(key)))
            for key, names in self._modules.items()
        )
        holdings.card = Card(True, held)  # with none of the rounds that the state's name counts, until it is in one

    @property
    def average(self) -> Tensor:
        """The modules' averages, flat, and behind them what others hold of them."""
        return self._average

    @property
    def attends(self) -> bool:
        """Whether others hold what is to be trained from."""
        return self._holdings.card.behind

    def round_elements(self, fragment: int) -> int:
        """Nothing that all clusters have in common; the groups say how much each moves."""
        return 1

    def common(self) -> Sequence[tuple[str, str]]:
        """What all clusters must share: the settings, and no tensors."""
        return self.state.settings

    def receiver(self) -> Receiver:
        """Where the agreed state is received: its name alone, for content comes with the next round."""
        assert isinstance(self.state, PathState)
        return Name(self.state)

    def holds(self, key: bytes) -> list[Tensor]:
        """All that is agreed of a module: parameters, buffers, and the outer optimizer's state."""
        return [self.state.committed[name].view(-1) for name in self._entries_of(self._modules[key])]

    def capture(self, weight: float) -> None:
        """Compute the pseudo-gradient, and make room for what others may hold."""
        super().capture(weight)
        self._make_room()

    def commit(self, version: int) -> None:
        """Make the finished state the agreed one: nothing is behind any longer."""
        going_on = sources(self._parts)
        super().commit(version)
        self._holds({key: held.rounds + 1 for key, held in going_on.items()}, behind=False)

    def adopt(self, *, mine: Collection[int]) -> None:
        """Go on under the name that was received; the content comes with the next round."""
        self._holds(behind=True)
        if mine:
            self._land(self.fragments[self._captured])

    def load(self) -> None:
        """Train on from the agreed state, as far as it is here."""
        super().load()
        self._holds(behind=True)

    def restore(self) -> None:
        """As `load`, of a checkpoint: content and name are of the same round."""
        super().restore()
        self._holds(dict.fromkeys(self._modules, self.rounds), behind=True)

    def carried(self, *, captured: bool) -> dict[str, Any]:
        """What a newcomer to the cluster needs, beside the model and the agreed state."""
        return {**super().carried(captured=captured), "modules": self._holdings.card.encode()}

    def take_over(self, carried: dict[str, Any]) -> None:
        """Hold what another worker holds."""
        super().take_over(carried)
        self._holdings.card = Card.decode(carried["modules"])
        self._make_room()

    def _holds(self, rounds: Mapping[bytes, int] = MappingProxyType({}), *, behind: bool) -> None:
        """Say how many rounds are in what is here of each module, as many as before if not given, and what it lacks."""
        held = []
        for module in self._holdings.card.modules:
            count = rounds.get(module.key, module.rounds)
            held.append(replace(module, rounds=count, young=count < self.rounds - count))
        self._holdings.card = Card(behind, tuple(held))

    def _make_room(self) -> None:
        elements = self.elements(0) + room(self._holdings.card)
        if len(self._average) != elements:
            self._average = torch.zeros(elements, dtype=self.dtype, device="cpu")

    def _make_state(self, entries: Sequence[Entry], settings: Sequence[tuple[str, str]]) -> GlobalState:
        odd = next((e for e in entries if e.dtype != str(self.dtype).removeprefix("torch.")), None)
        if odd is not None:
            raise ConfigError(f"{odd.name!r} is {odd.dtype}: a module's state travels as one, in {self.dtype}")
        return PathState(entries, settings)

    def _counted(self, parts: Sequence[Participant]) -> dict[str, int]:
        return {**super()._counted(parts), CHAIN: chained(self.state.digest, parts)}

    def _idle(self, parts: Sequence[Participant]) -> bool:
        return False  # decided module by module

    def _step(self, average: Tensor) -> Mapping[str, Tensor]:
        """Begin the next state: take over what was copied, then step what somebody has trained."""
        deltas = self._views(average)
        tentative = self.state.begin()
        for key in self._received():
            behind = average[spans(self._holdings.card)[key][1]]
            names = self._entries_of(self._modules[key])
            for name, part in zip(names, torch.split(behind, [tentative[n].numel() for n in names]), strict=True):
                tentative[name].view(-1).copy_(part)
        trained = self._trained()
        stepped = {n: d for n, d in deltas.items() if n in trained and n in self.trained}
        self._outer.step(tentative, stepped, *self._terms)
        for name in deltas:
            if name in trained and name in self.buffers:
                self._mean_of_buffer(name)(tentative[name], deltas[name])
        return tentative

    def _received(self) -> list[bytes]:
        """The modules that were copied from another cluster."""
        due = [g for g in groups(self._parts) if g.root not in (None, self._cluster) and self._cluster in g.clusters]
        return [key for group in due for key in group.keys]

    def _trained(self) -> set[str]:
        """Names of the tensors whose modules some holder has trained."""
        active = [p for p in self._parts if p.weight > LOOKS_ON]
        keys = {m.key for p in active for m in card_of(p).modules}
        return {name for key, names in self._modules.items() if key in keys for name in names}

    def _entries_of(self, names: Sequence[str]) -> list[str]:
        """A module's entries in the global state."""
        return [entry for name in names for entry in (self._outer.touched([name]) if name in self.trained else [name])]

    def _keyed(self, modules: Sequence[str]) -> dict[bytes, list[str]]:
        """The model's tensors by the key of their module, in the order of the keys."""
        named: dict[str, list[str]] = {}
        for tensor in self._tensors:
            fitting = [name for name in modules if _inside(tensor, name)]
            named.setdefault(max(fitting, key=len, default=""), []).append(tensor)
        strange = next((name for name in modules if not any(_inside(t, name) for t in self._tensors)), None)
        if strange is not None:
            raise ConfigError(f"module {strange!r} names nothing that is trained")
        keyed = {key_of(n, [(t, self._tensors[t].shape) for t in held]): held for n, held in named.items()}
        return dict(
            sorted((key, names) for key, names in keyed.items() if sum(self._tensors[n].numel() for n in names))
        )


def _inside(tensor: str, module: str) -> bool:
    """Whether a tensor of the global state is a module's, or is the one that is named so itself."""
    plain = tensor.removeprefix(BUFFER)
    return plain == module or plain.startswith(f"{module}.")
