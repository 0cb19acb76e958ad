"""A rank of a sharded model at the boundary of a round, with siblings that say what a test has them say."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest

from ictp2p.sync.cluster.siblings import Siblings, Standing
from ictp2p.sync.two_level.company import Abandoned, Company

ATTENDS, LANDED, MOVES, WAITS = Standing.ATTENDS, Standing.LANDED, Standing.MOVES, Standing.WAITS


class Scene:
    """One rank, and one sibling whose standings come from a script, a tenth of a second apart."""

    def __init__(self, *script: Standing) -> None:
        self.script, self.said, self.now = list(script), list[Standing](), 0.0
        self.others_waited = 0.0
        self.company = Company(cast("Siblings", self), lambda: self.now)

    def stand(self, standing: Standing, waited: float = 0.0) -> list[tuple[Standing, float]]:
        self.now += 0.1
        self.said.append(standing)
        other = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        return [(other, self.others_waited), (standing, waited)]


def wait(scene: Scene, times: int) -> Callable[[], None]:
    def attend() -> None:
        for _ in range(times):
            scene.company.wait()

    return attend


def test_who_has_landed_goes_on_when_all_have() -> None:
    scene = Scene(MOVES, MOVES, LANDED)
    scene.company.gather(None)
    assert scene.said == [LANDED] * 3


def test_who_has_landed_attends_the_next_round_while_a_sibling_waits() -> None:
    """Else those whom the sibling waits for would wait for this one's next phase, and it for theirs."""
    scene = Scene(*[WAITS] * 9, LANDED)
    scene.company.gather(wait(scene, 3))
    assert ATTENDS in scene.said
    assert scene.said[-1] is LANDED
    assert scene.said.index(ATTENDS) > 4, "it is not at once that siblings land"


@pytest.mark.parametrize("other", [MOVES, ATTENDS])
def test_but_not_while_the_sibling_is_busy(other: Standing) -> None:
    scene = Scene(*[other] * 20, LANDED)
    scene.company.gather(wait(scene, 3))
    assert set(scene.said) == {LANDED}


def test_nor_where_its_next_round_is_under_way_already() -> None:
    scene = Scene(*[WAITS] * 20, LANDED)
    scene.company.gather(None)
    assert set(scene.said) == {LANDED}


@pytest.mark.parametrize(("waited", "attends"), [(0.0, False), (4.0, False), (6.0, True)])
def test_who_was_much_earlier_than_shard_0_attends_at_once_the_next_time(waited: float, attends: bool) -> None:
    scene = Scene(LANDED)
    scene.now, scene.others_waited = 10.0, waited
    scene.company.launched()
    scene.company.gather(None)
    scene.said.clear()
    scene.script, scene.others_waited = [LANDED], 0.0
    scene.company.launched()
    scene.company.gather(wait(scene, 1))
    assert scene.said == [ATTENDS, LANDED] if attends else [LANDED]
    scene.said.clear()
    scene.company.launched()
    scene.company.gather(wait(scene, 1))
    assert scene.said == [LANDED], "once"


def test_a_round_that_was_only_attended_is_given_up_when_nobody_waits_any_more() -> None:
    scene = Scene(*[WAITS] * 6, *[LANDED] * 9)
    scene.now = 2.0
    scene.company.launched()
    with pytest.raises(Abandoned):
        scene.company.gather(wait(scene, 99))
    assert scene.said.count(ATTENDS) > 3, "its own may begin a moment after the sibling's"
    scene.company.gather(None)
    assert scene.said[-1] is LANDED


def test_but_not_once_it_has_begun() -> None:
    scene = Scene(*[WAITS] * 6, LANDED)

    def attend() -> None:
        scene.company.begun()
        wait(scene, 99)()

    scene.company.gather(attend)
    assert scene.said.count(MOVES) == 99


def test_nor_is_a_round_of_its_own() -> None:
    scene = Scene(LANDED)
    wait(scene, 99)()
    assert set(scene.said) == {WAITS}


def test_two_who_only_attend_do_not_wait_for_each_other() -> None:
    scene = Scene(*[WAITS] * 6, ATTENDS)
    scene.now = 2.0
    scene.company.launched()
    with pytest.raises(Abandoned):
        scene.company.gather(wait(scene, 99))
