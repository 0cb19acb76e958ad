"""What is reduced, in the words of whoever has to mend one of two programs.

A spec has to tell any two calls apart, and so holds what no program ever wrote: how many bytes a broadcast comes to, or
the round that finds out who is there for another one. People are told of the call that they made, and of two that are
the same call only in what they differ.
"""

from __future__ import annotations

from collections.abc import Sequence

from ictp2p.sync.values import Spec, outvoted
from ictp2p.types import ClusterId

_CAUSES = "an outer optimizer or rate of their own, another version of torch, other hardware, or memory that fails"
"""Of different results from the same bytes."""


def apart(camps: Sequence[Sequence[ClusterId]]) -> str:
    """Who came to another result than whom, from the same average, and what that comes from."""
    most, *others = (", ".join(camp) for camp in camps)
    odd = ", ".join(others)
    if outvoted(camps):
        who = f"the results of {odd} differ from that of {most}"
    else:
        who = f"the results of {' and '.join([most, *others])} differ, and none is that of most"
    return f"{who}; look for {_CAUSES}"


def in_words(spec: Spec) -> str:
    """A call, or the rounds of a policy."""
    name, _, root = spec.name.partition("@")
    match spec.kind:
        case "sync":
            return spec.name
        case "broadcast":
            return f"{name} from {root}{_tensors(spec)}"
        case "collect":
            return f"{name} to {root}{_tensors(spec)}, op {spec.op}"
        case "reduce" | "scatter":
            codec = "" if spec.codec == "none" else f", codec {spec.codec}"
            return f"{name}{_tensors(spec)}, op {spec.op}{codec}"
        case _:
            return f"{spec.name}{_tensors(spec)}"


def told_apart(name: ClusterId, own: Spec, chosen: Spec, agreeing: str) -> str:
    """Say in what the contribution of cluster `name` differs from that of those who agree."""
    if (own.kind, own.name) != (chosen.kind, chosen.name):
        return f"cluster {name} is at {in_words(own)}; the round is for {in_words(chosen)}, as brought by {agreeing}"
    fields = [field for field in Spec.__struct_fields__ if getattr(own, field) != getattr(chosen, field)]
    mine, theirs = (", ".join(_field(spec, field) for field in fields) for spec in (own, chosen))
    return f"cluster {name} brings {mine}; the round is for {theirs}, as brought by {agreeing}"


def _tensors(spec: Spec) -> str:
    return f" of {spec.config.decode(errors='replace')}" if spec.config else ""


def _field(spec: Spec, field: str) -> str:
    match field, getattr(spec, field):
        case "config", b"":
            return "no tensors"
        case "config", bytes(config) if config.isascii() and config.decode().isprintable():
            return f"tensors {config.decode()}"  # of a call
        case "config", bytes(config):
            return f"a model and settings of digest {config.hex()[:16]}"
        case _, value:
            return f"{field} {value}"
