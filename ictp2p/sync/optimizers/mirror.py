"""Mirror descent as the outer optimizer: a step in the dual space of a mirror map.

    x <- grad psi* ( grad psi(x) - lr d ),    d = delta, or torch's Nesterov direction with momentum

Nemirovski and Yudin, "Problem Complexity and Method Efficiency in Optimization" (1983); Beck and Teboulle, "Mirror
descent and nonlinear projected subgradient methods for convex optimization" (2003). The direction is the averaged
pseudo-gradient, as for every outer optimizer; what the map changes is how it is applied:

- `euclidean`, psi = |x|^2 / 2: ordinary SGD, bit for bit the step of `Nesterov`.
- `entropic`, psi = sum x log x over rows of the last dimension: exponentiated gradient (Kivinen and Warmuth, 1997).
  Rows that are probability distributions (mixing weights, routing tables) stay so, whatever the learning rate, where a
  Euclidean step would have to be projected back.
- `p-norm`, psi = |x|_p^2 / 2 over the whole tensor (Grove, Littlestone and Schuurmans, 2001): between the two; p near 1
  favours sparse moves, p = 2 is Euclidean up to rounding.

The map is chosen per parameter group, so one model can have both. `exp`, `log` and `pow` are not correctly rounded as
additions are: processors of different kinds may differ in the last bit, and the round is then aborted rather than
applied differently, as for every outer optimizer but `Nesterov`. How many cores there are makes no difference.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from ictp2p.concurrency.torch_threads import each_alone
from ictp2p.errors import ConfigError
from ictp2p.sync import options
from ictp2p.sync.optimizers.outer import Nesterov

MirrorMap = Literal["euclidean", "entropic", "p-norm"]
"""Which geometry a group of parameters lives in."""
_SLACK = 1e-3
"""How far a row's sum may be from 1 before it is no distribution: half precision keeps three digits."""


class MirrorDescent(Nesterov):
    """Nesterov's direction, applied through a mirror map.

    ```python
    outer = MirrorDescent([{"params": mixing, "mirror": "entropic"}, {"params": rest}], lr=0.7)
    ```
    """

    def __init__(
        self,
        params: Any,
        lr: float = 0.7,
        momentum: float = 0.9,
        nesterov: bool = True,
        mirror: MirrorMap = "euclidean",
        p: float = 1.5,
    ) -> None:
        """Set it up.

        Args:
            params: as for every torch optimizer; a group may name its own `mirror` and `p`.
            lr: learning rate, in units of the dual space.
            momentum: decay of the momentum per outer step, in [0, 1); kept in the dual space.
            nesterov: look ahead; heavy-ball otherwise.
            mirror: the map.
            p: of `p-norm`, in (1, 2].

        Raises:
            ConfigError: a value is out of range, or a parameter under `entropic` is not made of distributions.
        """
        super().__init__(params, lr, momentum, nesterov)
        for group in self.param_groups:
            group["mirror"], group["p"] = _checked(group.get("mirror", mirror), group.get("p", p), group["params"])

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Take one step along the gradients."""
        each_alone(self.jobs())

    def _step(self, settings: Mapping[str, Any], value: Tensor, delta: Tensor, *buffers: Tensor) -> None:
        move = self._move(delta, buffers, settings)
        _apply(settings["mirror"], settings["p"], value, move.mul(settings["lr"]))


def _apply(mirror: str, p: float, param: Tensor, move: Tensor) -> None:
    """Move a parameter by `-move` in the dual space, in place."""
    if mirror == "euclidean":
        param.sub_(move)
    elif mirror == "entropic":
        # log 0 is -inf and stays: what has no probability gets none, as the exact update says.
        param.copy_(torch.softmax(param.log().sub_(move), dim=-1))
    else:
        q = p / (p - 1.0)
        param.copy_(_link(_link(param, p).sub_(move), q))


def _link(point: Tensor, p: float) -> Tensor:
    """The gradient of |x|_p^2 / 2; with the conjugate exponent, its inverse."""
    scale = point.abs().amax() if point.numel() else 0.0
    if scale == 0.0:
        return torch.zeros_like(point)
    unit = point / scale  # no power of a large or tiny number
    norm = unit.abs().pow(p).sum().pow(1.0 / p)
    return unit.sign().mul_(unit.abs().pow(p - 1.0)).mul_(norm.pow(2.0 - p)).mul_(scale)


def _checked(mirror: str, p: float, params: list[Tensor]) -> tuple[str, float]:
    options.one_of("mirror", mirror, get_args(MirrorMap))
    p = options.number("p", options.scalar(p), lambda p: 1.0 < p <= 2.0, "in (1, 2]")
    if mirror == "entropic":
        for param in params:
            _check_simplex(param.detach())
    return mirror, p


def _check_simplex(param: Tensor) -> None:
    if param.ndim == 0 or param.numel() == 0:
        raise ConfigError(f"a parameter of shape {tuple(param.shape)} has no rows to be distributions")
    off = float((param.double().sum(-1) - 1.0).abs().max())
    if not (bool((param >= 0).all()) and off <= _SLACK):
        raise ConfigError(
            f"mirror 'entropic' is for rows that are distributions: the least value is {float(param.min()):g}, "
            f"a sum is {off:g} from 1"
        )
