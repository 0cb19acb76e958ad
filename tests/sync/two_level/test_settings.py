"""Which options there are, and which of them a policy's signature names. What they cannot be: `test_policy`."""

from __future__ import annotations

import inspect
from dataclasses import fields
from typing import Any, get_args, get_type_hints

import pytest
import torch

from ictp2p.errors import ConfigError
from ictp2p.sync.policies.asynchronous import AsyncDiLoCo
from ictp2p.sync.policies.diloco import DiLoCo
from ictp2p.sync.policies.dipaco import DiPaCo
from ictp2p.sync.policies.eager import EagerDiLoCo
from ictp2p.sync.policies.local_sgd import LocalSGD
from ictp2p.sync.policies.noloco import NoLoCo
from ictp2p.sync.policies.sparse import SparseDiLoCo
from ictp2p.sync.policies.streaming import StreamingDiLoCo
from ictp2p.sync.samples.sampler import ElasticSampler
from ictp2p.sync.two_level.policy import Policy
from ictp2p.sync.two_level.settings import AllOptions, Settings
from tests.sync.diloco_trace import Model

POLICIES = [AsyncDiLoCo, DiLoCo, DiPaCo, EagerDiLoCo, LocalSGD, NoLoCo, SparseDiLoCo, StreamingDiLoCo]
FITS: dict[str, Any] = {
    "fragments": 1,
    "overlap": 1,
    "mix": 0.5,
    "codec": "int8",
    "quorum": 0.5,
    "spread": 1.0,
    "frozen": "own",
    "agenda": [],
    "sampler": ElasticSampler(64, 4),
    "outer_schedule": lambda rounds: 1.0,
}
"""For each option that some policy does not take, what another one would."""


def named(policy: type[Policy]) -> set[str]:
    """The options that a policy's signature names, as parameters or as kinds of options."""
    (kinds,) = get_args(get_type_hints(policy.__init__)["options"])
    known = {field.name for field in fields(Settings)}
    return set(get_type_hints(kinds)) | (known & set(inspect.signature(policy.__init__).parameters))


def test_the_kinds_of_options_together_are_all_options_with_their_types() -> None:
    typed = get_type_hints(Settings)
    assert get_type_hints(AllOptions) == {field.name: typed[field.name] for field in fields(Settings)}


@pytest.mark.parametrize("policy", POLICIES)
def test_a_policy_takes_the_options_that_its_signature_names_and_no_others(policy: type[Policy]) -> None:
    others = {field.name for field in fields(Settings)} - named(policy)
    assert others <= FITS.keys()
    for name in sorted(others):
        model = Model()
        needed = {"clusters": 2} if policy is AsyncDiLoCo else {}
        with pytest.raises(ConfigError, match=name):
            policy(None, model, torch.optim.SGD(model.parameters(), lr=1.0), **needed, **{name: FITS[name]})  # type: ignore[arg-type, call-arg]


@pytest.mark.parametrize("policy", POLICIES)
def test_an_option_that_is_misspelt_is_named_with_what_may_be_meant(policy: type[Policy]) -> None:
    """Regression: it was a `TypeError` about `Settings`, which nobody had called."""
    model = Model()
    needed = {"clusters": 2} if policy is AsyncDiLoCo else {}
    for name, meant in (("sync_evry", ": sync_every may be meant"), ("lat", ": late may be meant"), ("zzz", "")):
        with pytest.raises(ConfigError, match=f"^{policy.__name__} takes no '{name}'{meant}$"):
            policy(None, model, torch.optim.SGD(model.parameters(), lr=1.0), **needed, **{name: 3})  # type: ignore[arg-type, call-arg]


def test_every_option_is_explained_where_it_is() -> None:
    """What is said of it to people is a string below it, which nothing but this reads."""
    lines = [line.strip() for line in inspect.getsource(Settings).splitlines()]
    for field in fields(Settings):
        (at,) = [number for number, line in enumerate(lines) if line.startswith(f"{field.name}: ")]
        assert lines[at + 1].startswith('"""'), field.name
