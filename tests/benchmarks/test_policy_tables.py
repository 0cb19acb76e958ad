"""What the measurements of the policies compute from what was measured; the runs themselves take minutes."""

from __future__ import annotations

import importlib
import math
import sys
from typing import Any

import adaptive
import layer_by_layer
import learning
import overlap
import policy_memory
import pytest
import utilization
from hypothesis import example, given, settings
from hypothesis import strategies as st


@given(st.floats(0.3, 0.99), st.floats(0.01, 100.0), st.floats(0.0, 0.9))
@settings(max_examples=50)
@example(0.5, 1.0, 0.0)
@example(0.98828125, 1.0, 0.75)
def test_the_slowest_sufficient_link_is_found(target: float, load: float, hidden: float) -> None:
    """A phase of one second and a round of `load / rate`, some of it under cover, has a slowest link in closed form."""
    search = utilization.Search(lambda rate: 1.0 / (1.0 + max(0.0, load / rate - hidden)), guess=load)
    exact = load / (1.0 / target - 1.0 + hidden)
    assert search.rate(target) == pytest.approx(exact, rel=0.03)
    assert search.rate(target) == pytest.approx(exact, rel=0.03), "and again, from what was simulated before"


def test_a_link_that_is_never_enough_is_named() -> None:
    with pytest.raises(ValueError, match="is lost at any rate"):
        utilization.Search(lambda rate: 0.5, guess=1.0).rate(0.9)


def test_rates_are_scaled_back_to_the_model_that_they_stand_for() -> None:
    line = utilization.Line("", "", 1e10, 0.8, utilization.Setting(every=100), ())
    half = utilization.ELEMENTS / utilization.PHASE  # a phase of seconds for the elements, once each way
    # 10^10 elements of 16 bits each way in the 80 s of 100 steps are 4 Gbit/s in all, two each way.
    assert utilization.gigabits(line, half) == pytest.approx(4.0)


def test_what_is_measured_is_whole_turns_of_all_fragments() -> None:
    for fragments, mean, measured in ((8, 12.5, 4), (16, 6.25, 8), (36, 100 / 36, 18), (4, 25.0, 2)):
        setting = utilization.Setting(every=100, fragments=fragments)
        assert (setting.between, setting.measured) == (mean, measured)
        pace = utilization.WholeSteps(100, 3)
        pace.fit(fragments, 2)
        turns = [pace.length(number) for number in range(setting.measured)]
        assert all(turn % 3 == 0 for turn in turns)
        assert sum(turns) == 3 * setting.measured * mean


def test_rates_are_compared_on_the_published_grid() -> None:
    """Every printed value is a point of it, and a rate counts as the point below."""
    for printed in {value for line in utilization.LINES for value in line.published}:
        point = utilization.LOWEST * utilization.GRID ** utilization.published_point(printed)
        assert abs(point - printed) < 0.055, (printed, point)
        assert (
            utilization.point(point * 1.001) == utilization.point(point * 1.2) == utilization.published_point(printed)
        )
        assert utilization.point(point * 0.999) == utilization.published_point(printed) - 1


@given(st.integers(1, 12), st.integers(1, 4), st.floats(0.01, 10.0))
def test_layers_go_over_the_line_one_after_the_other(fragments: int, deep: int, transfer: float) -> None:
    """The first layer of the first fragment is never hidden; what outlasts the pass is between that and all bytes."""
    layers = fragments * deep
    late = layer_by_layer.exposed(fragments, layers, transfer, backward=1.0)
    assert transfer / fragments - 1e-9 <= late <= deep * transfer + 1e-9
    if fragments == 1:
        spacing = 1.0 / layers
        assert late == pytest.approx(max(transfer, layers * transfer + spacing - 1.0))


def test_layer_by_layer_the_published_tables_are_met_but_for_one_cell() -> None:
    apart = {
        (line.table, line.name, target): step
        for line in utilization.LINES
        if not line.setting.overlap
        for target, step in zip(utilization.TARGETS, layer_by_layer.steps(line), strict=True)
    }
    assert len(apart) == 45 + 25
    assert [cell for cell, step in apart.items() if abs(step) > 1] == [("Scaling laws, 10B", "H=50", 0.95)]


def test_a_loss_lies_between_the_rounds_around_its_time() -> None:
    curve = [(0.0, 3.0, 50), (10.0, 2.0, 50), (14.0, 1.0, 50)]
    assert adaptive.at(curve, 11.0) == 1.75
    assert adaptive.at(curve, 10.0) == 2.0
    with pytest.raises(AssertionError):
        adaptive.at(curve, 15.0)


def test_the_adaptive_one_is_compared_with_the_best_fixed_one() -> None:
    losses = {"adaptive": (2.0, 2.1), "50": (2.0, 2.06), "100": (1.9, 2.4)}
    rows = [{"name": name, "loss": loss, "seed": n} for name, seeds in losses.items() for n, loss in enumerate(seeds)]
    found = adaptive.summarize(rows)
    assert found["best_fixed"] == "50"
    assert found["gap"] == pytest.approx(2.05 / 2.03 - 1.0)
    assert found["gaps"] == {0: pytest.approx(2.0 / 1.9 - 1.0), 1: pytest.approx(2.1 / 2.06 - 1.0)}
    assert found["holds"]


def test_the_rate_warms_up_and_comes_down() -> None:
    shares = [learning.share(step, 100, 20) for step in range(100)]
    assert shares[:20] == pytest.approx([(n + 1) / 20 for n in range(20)])
    assert shares[20:] == sorted(shares[20:], reverse=True)
    assert shares[20] == 1.0
    assert learning.share(100, 100, 20) == learning.share(1000, 100, 20) == pytest.approx(0.05)


@pytest.mark.parametrize(("diloco", "order", "near"), [(2.04, True, True), (2.07, True, False), (1.9, False, True)])
def test_verdicts_are_what_the_losses_say(diloco: float, order: bool, near: bool) -> None:
    losses = {"data parallel": 2.0, "DiLoCo": diloco, "LocalSGD": 2.2}
    rows = [{"method": m, "seed": seed, "loss": loss} for m, loss in losses.items() for seed in (1, 2)]
    found = {verdict["what"]: verdict["holds"] for verdict in learning.verdicts(rows, learning.methods(50))}
    assert found == {
        "data parallel <= DiLoCo": order,
        "DiLoCo < LocalSGD": True,
        "DiLoCo at most 3.0% above data parallel": near,
    }


def test_overlap_is_compared_with_the_slower_and_with_the_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    def pair(step: float, overlapped: int, mbit: float, mb: float) -> list[dict[str, float]]:
        assert step == pytest.approx(1.6 * 1.6 / overlap.H)  # 4 MB at 20 Mbit/s are 1.6 s
        return [{"phase": 3.0 if overlapped else 5.0, "compute": 2.0}, {"phase": 2.5, "compute": 2.0}]

    monkeypatch.setattr(overlap, "pair", pair)
    row = overlap.measure(overlap.LOADS[0], 20.0, 4.0, repeat=1)
    assert (row["round"], row["against_the_slower"], row["against_the_sum"]) == (3.0, 1.0, 0.6)


def test_a_model_has_the_size_that_was_asked_for() -> None:
    model, inner = policy_memory.make(2.0)
    policy_memory.step(model, inner)
    assert sum(p.numel() * 4 for p in model.parameters()) == pytest.approx(2e6, rel=0.02)
    assert all(math.isfinite(p.sum().item()) and p.grad is not None for p in model.parameters())


SCRIPTS: list[Any] = [adaptive, learning, overlap, policy_memory, utilization]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_its_options_are_told(script: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", [script.__name__, "--help"])
    with pytest.raises(SystemExit, match="0"):
        script.main()
    assert "--json" in capsys.readouterr().out


def test_without_torchft_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUST_LOG", "error")  # the script sets it
    monkeypatch.setitem(sys.modules, "torchft", None)
    monkeypatch.delitem(sys.modules, "torchft_diloco", raising=False)
    with pytest.raises(SystemExit, match="pip install torchft-nightly"):
        importlib.import_module("torchft_diloco")
