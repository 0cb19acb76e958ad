"""Which tensors of a model are averaged, under which names, and where they are by now.

Those are the parameters that are trained, and the floating-point buffers: no optimizer steps these, but what was
averaged is evaluated with them. A parameter stays the object that it is, or the optimizer steps another one (`trainees`
sees to that). A buffer need not: a module may assign one in each forward pass, and a conversion makes new ones of all.
So buffers are followed to where the program has put them. What has no real numbers of its own to average, or no memory
for each of its elements to write them to, is refused by name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

from ictp2p.errors import ConfigError
from ictp2p.sync.model.fragments import Fragments, fragments
from ictp2p.sync.state.local import is_distributed, local

BUFFER = "buffer "
"""Before the name of a buffer in the global state."""
_OVERLAPS = "has several elements in one place, as expand() makes them: no average can be written to it; clone() it"


class ModelTensors:
    """Those of one model.

    Args:
        model: what is trained.

    Raises:
        ConfigError: it has nothing to train, or something that cannot be averaged.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        _check(model)
        self._model = model
        self.trained = {n: p for n, p in model.named_parameters() if p.requires_grad}
        """Parameters by name."""
        self.buffers = {f"{BUFFER}{n}": b for n, b in model.named_buffers() if b.is_floating_point()}
        """Floating-point buffers; they are averaged, but no optimizer steps them."""
        self.variances = frozenset(f"{BUFFER}{name}" for name in _variances(model))
        """Which buffers are variances: of one that a codec made negative there is no root."""
        self.here = {name: local(tensor) for name, tensor in (*self.trained.items(), *self.buffers.items())}
        """What of each is in this worker's memory, parameters first."""
        self._shapes = {name: parameter.shape for name, parameter in self.trained.items()}
        self._places = [(name, *_place(model, name.removeprefix(BUFFER))) for name in self.buffers]

    def follow(self) -> None:
        """Take the buffers as they are now: a module that assigns one, or a converted model, has another.

        And shards where they are now: what they lie in is FSDP's.

        Raises:
            ConfigError: one is gone, or cannot be averaged with those that it was before; or a parameter has another
                shape.
        """
        for name, parameter in self.trained.items():
            if parameter.shape != self._shapes[name]:
                shapes = f"{list(parameter.shape)} now, and had {list(self._shapes[name])}"
                raise ConfigError(f"{name} has the shape {shapes} when the policy was made")
        self.here.update((n, local(p)) for n, p in self.trained.items() if is_distributed(p))
        for name, module, leaf in self._places:
            held, now = self.buffers[name], getattr(module, leaf, None)
            if now is held:
                continue
            if not isinstance(now, Tensor) or now.shape != held.shape or not now.is_floating_point():
                what = f"{now.dtype}{list(now.shape)}" if isinstance(now, Tensor) else repr(now)
                was = f"{held.dtype}{list(held.shape)}"
                raise ConfigError(f"{name} is {what} now, and was {was} when the policy was made")
            if _overlaps(now):
                raise ConfigError(f"{name} {_OVERLAPS}")
            self.buffers[name], self.here[name] = now, local(now)

    def divide(self, wanted: int | Sequence[Collection[str]]) -> Fragments:
        """Divide them into fragments; see `fragments`.

        Raises:
            ConfigError: the model cannot be divided so.
        """
        if wanted == 1 or not self.here:
            return (tuple(self.here),)
        keys = {key.removeprefix(BUFFER): key for key in self.here}
        return tuple(tuple(keys[name] for name in part) for part in fragments(self._model, list(keys), wanted))


def _variances(model: torch.nn.Module) -> Iterator[str]:
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.modules.batchnorm._NormBase) and module.running_var is not None:
            yield f"{name}.running_var" if name else "running_var"


def _place(model: torch.nn.Module, name: str) -> tuple[torch.nn.Module, str]:
    path, _, leaf = name.rpartition(".")
    return model.get_submodule(path), leaf


def to_train(model: torch.nn.Module) -> dict[str, torch.nn.Parameter]:
    """Give the parameters that are trained, by name.

    Raises:
        ConfigError: there is none.
    """
    trained = {n: p for n, p in model.named_parameters() if p.requires_grad}
    if not trained:
        why = "none requires a gradient" if any(True for _ in model.parameters()) else "it has none at all"
        raise ConfigError(f"model {type(model).__name__} has no parameter that could be trained: {why}")
    return trained


def _check(model: torch.nn.Module) -> None:
    lazy = next((n for n, t in (*model.named_parameters(), *model.named_buffers()) if is_lazy(t)), None)
    if lazy is not None:
        raise ConfigError(f"{lazy!r} has no shape yet: call the lazy module once before the policy is made")
    trained = to_train(model)
    if not any(local(p).numel() for p in trained.values()):
        raise ConfigError(
            f"what {type(model).__name__} has to train has no element here: {', '.join(list(trained)[:3])}"
        )
    _check_buffers({n: b for n, b in model.named_buffers() if b.is_floating_point()})
    for name, parameter in trained.items():
        if not parameter.is_floating_point():
            raise ConfigError(f"parameter {name!r} is {parameter.dtype}: only real floating-point ones can be averaged")
        if parameter.device.type == "meta":
            raise ConfigError(f"parameter {name!r} has no memory yet (it is on the meta device)")


def _check_buffers(buffers: dict[str, Tensor]) -> None:
    shared = next((name for name, buffer in buffers.items() if _overlaps(buffer)), None)
    if shared is not None:
        raise ConfigError(f"buffer {shared!r} {_OVERLAPS}")
    nowhere = next((name for name, buffer in buffers.items() if buffer.device.type == "meta"), None)
    if nowhere is not None:
        raise ConfigError(f"buffer {nowhere!r} has no memory yet (it is on the meta device)")


def _overlaps(tensor: Tensor) -> bool:
    """Whether several elements are one place in memory."""
    steps = tensor.stride() if tensor.layout is torch.strided else tensor.shape
    return any(size > 1 and not step for size, step in zip(tensor.shape, steps, strict=True))
