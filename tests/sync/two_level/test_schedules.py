"""Learning-rate schedules that programs step after each inner step, where a group is built between the two."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch

from ictp2p.errors import LocalGroupError
from ictp2p.sync.policies.diloco import DiLoCo
from ictp2p.sync.two_level.stream import Kind
from tests.sync.diloco_trace import Model, rows, same

EVERY, STEPS = 3, 12
DEADLINE = 20.0
Rates = dict[int, float]


def worker(number: int, before: Callable[[Any], None] = lambda mesh: None) -> Callable[[Any], Any]:
    """Trains; gives the rate of each step that it took, its parameters, and what its schedule is at."""

    def body(mesh: Any) -> Any:
        before(mesh)
        model, rates = Model(), Rates()
        inner = torch.optim.SGD(model.parameters(), lr=1.0)
        schedule = torch.optim.lr_scheduler.LambdaLR(inner, lambda step: 2.0**-step)
        with DiLoCo(mesh, model, inner, None, EVERY, carry=[schedule]) as policy:

            def steps(*_: Any) -> None:
                rates[policy.progress.step + 1] = inner.param_groups[0]["lr"]

            inner.register_step_pre_hook(steps)  # after the policy's
            while policy.progress.step < STEPS:
                model.w.grad = torch.from_numpy(rows(number, STEPS)[policy.progress.step]) + model.w.detach()
                inner.step()
                schedule.step()
        return rates, model.w.detach().numpy().copy(), schedule.last_epoch

    return body


def right(rates: Rates) -> Rates:
    return {step: 2.0 ** (1 - step) for step in rates}


def test_a_newcomer_that_is_let_in_within_a_round_is_no_step_behind(make_world: Any) -> None:
    """Regression: it was given the schedule as it was before the step, and stayed one behind for good."""
    world, comes = make_world(a=1), threading.Event()

    def breaking(mesh: Any) -> None:
        bring, count = mesh.outer_round, iter(range(STEPS))

        def outer_round(request: Any) -> Any:
            if next(count) == 1:
                comes.set()
                with world.changed:
                    assert world.changed.wait_for(lambda: world.clusters["a"].pending, DEADLINE)
                raise LocalGroupError("the group broke")
            return bring(request)

        mesh.outer_round = outer_round

    def coming(mesh: Any) -> None:
        ready = mesh.roster_ready

        def roster_ready(*given: Any) -> None:
            assert comes.wait(DEADLINE)
            ready(*given)
            with world.changed:
                world.changed.notify_all()

        mesh.roster_ready = roster_ready

    second = world.start("a_1", worker(1, coming))
    found = world.run(a_0=worker(0, breaking))
    second.join(30)
    assert not world.errors, world.errors
    (old, w, epoch), (new, other, its) = found["a_0"], world.results["a_1"]
    assert min(new) == 2 * EVERY + 1
    assert (old, new) == (right(old), right(new))
    assert epoch == its == STEPS
    same([w], [other])


@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize("again", ["", "the next step"])
def test_who_is_healed_by_a_worker_in_a_round_is_no_step_behind(make_world: Any, victim: int, again: str) -> None:
    """The victim loses the sum of the last step before a round, in which the other one is when they meet again."""
    world = make_world(a=2)
    world.faults[f"a/{victim}", "all_reduce done", EVERY - 1] = lambda: LocalGroupError("the answer was lost")
    if again:  # before all have been compared once more; they say something twice for that, and once in each step
        world.faults[f"a/{victim}", "all_gather", 2 + EVERY + 2] = lambda: LocalGroupError("the group broke again")
    found = world.run(a_0=worker(0), a_1=worker(1))
    (hers, w, epoch), (his, other, its) = found[f"a_{1 - victim}"], found[f"a_{victim}"]
    assert hers.keys() - his.keys() == {EVERY}
    assert (hers, his) == (right(hers), right(his))
    assert epoch == its == STEPS
    same([w], [other])


def test_who_is_healed_in_a_round_by_one_before_a_step_is_no_step_ahead(make_world: Any, killed: Any) -> None:
    """The leader dies after one follower has the verdict, and goes on; the other one becomes like it in its round."""
    world = make_world(a=3)
    gone = threading.Event()

    def late(mesh: Any) -> None:
        """Hears nothing of the verdict, and not that the group broke before the other one has met that."""
        opened, commits = mesh.open_group, iter(range(STEPS))

        def open_group(roster: Any) -> Any:
            group = opened(roster)
            broadcast = group.broadcast

            def listen(tensor: torch.Tensor, root: int) -> None:
                broadcast(tensor, root)
                if tensor.dtype == torch.uint8 and tensor[0] == Kind.COMMIT and next(commits) == 1:
                    assert gone.wait(DEADLINE)
                    raise LocalGroupError("the verdict was lost")

            group.broadcast = listen
            return group

        mesh.open_group = open_group

    def early(mesh: Any) -> None:
        wait, count = mesh.wait_roster, iter(range(STEPS))

        def wait_roster(*given: Any) -> Any:
            if next(count) == 1:
                gone.set()
            return wait(*given)

        mesh.wait_roster = wait_roster

    world.faults["a/0", "all_gather", 2 + EVERY] = killed
    found = world.run(a_0=worker(0), a_1=worker(1, early), a_2=worker(2, late))
    assert world.dead == {"a/0"}
    (hers, w, epoch), (his, other, its) = found["a_1"], found["a_2"]
    assert (hers, his) == (right(hers), right(his))
    assert epoch == its == STEPS
    same([w], [other])
