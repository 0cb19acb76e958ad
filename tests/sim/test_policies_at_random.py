"""Trainings of clusters of one to three workers, by any policy, while workers die, sleep, leave and come back.

Each gradient says whose it is and of which of its steps, so a state says what is in it (`tests/sim/marks.py`). What
must hold, whatever happens: all who hold a version hold the same bits; the workers of a group hold the same model after
each step; each gradient is in the state once at most, in a round that names its cluster, at the weight that was
decided; who was awake loses nothing; no program sees an error; and all come to the last version soon.
`POLICIES=500 pytest tests/sim/test_policies_at_random.py` tries many more.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from ictp2p.sync.model import stepping
from tests.sim.marks import places
from tests.sim.pair_stories import Paired
from tests.sim.path_stories import Pathed
from tests.sim.policy_stories import Harm, Sampled, Story

STORIES = int(os.environ.get("POLICIES", "6"))
FOUND = {
    "an heir brings one fragment and dies, and who slept wakes with another one captured": (
        *((2, 1, 1), "fragments", 0.8),
        (Harm(2.338, "sleep", 1, 5.0), Harm(2.927, "leave", 4), Harm(2.314, "restart", 3, 5.0)),
    ),
    "a leader lands a round, launches the next one and leaves, and its mates have heard of neither": (
        *((3,), "eager", 0.8),
        (Harm(1.3649, "crash", 1), Harm(0.6286, "restart", 5, 12.0)),
    ),
}

PATHS_FOUND = {
    "a cluster misses a round, and the only one that was in it with their module starts again": (
        *((1, 1, 1), "paths, not all waited for", 0.8),
        (Harm(1.9595, "join"), Harm(2.2047, "sleep", 2, 1.5), Harm(2.5389, "restart", 1, 5.0)),
    ),
    "a leader starts again before it sees the mates who have just told it that it leads": (
        *((3,), "paths", 0.8),
        (Harm(1.6366, "restart", 1, 0.0),),
    ),
}


@pytest.fixture(autouse=True, scope="module")
def small_batches() -> Iterator[None]:
    """Have these models stepped while their average arrives, as those of gigabytes are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stepping, "_BATCH", 8)
        yield


@pytest.mark.timeout(60 + 15 * STORIES)
@given(st.integers(0, 2**32))
@settings(max_examples=STORIES, deadline=None, phases=(Phase.generate,), suppress_health_check=list(HealthCheck))
def test_whatever_happens_each_gradient_is_in_the_state_once_and_all_hold_the_same(seed: int) -> None:
    told(Story.drawn(seed))


@pytest.mark.timeout(60 + 15 * STORIES)
@pytest.mark.parametrize("kind", [Sampled, Paired, Pathed])
@given(seed=st.integers(0, 2**32))
@settings(
    max_examples=max(1, STORIES // 4), deadline=None, phases=(Phase.generate,), suppress_health_check=list(HealthCheck)
)
def test_nor_is_any_lost_or_counted_twice_by_samples_in_pairs_or_by_modules(kind: type[Story], seed: int) -> None:
    """Each sample is in the state once per epoch; a pair, and who holds a module, hold the mean of what they had."""
    told(kind.drawn(seed))


def told(story: Story) -> None:
    """Play it, and show it if it ends badly, to be played again."""
    try:
        story.play()
    except BaseException as error:
        error.add_note(repr(story))
        raise


@pytest.mark.parametrize("found", FOUND)
def test_stories_that_ended_badly_do_so_no_more(found: str) -> None:
    Story(*FOUND[found]).play()


def test_what_was_trained_of_a_module_outlives_who_begins_it_anew_meanwhile() -> None:
    """B sleeps through the rounds in which a, which has started again, is the only one with a module that both hold."""
    sleeps, starts = Harm(9.0, "sleep", 1, 5.0), Harm(0.05, "restart", 0, 1.5)
    story = Pathed((1, 1, 1), "paths, not all waited for", 0.4, (sleeps, starts))
    story.play()
    early = {place for _, held in story.contents["ab", 3] for place in places(held)}
    last = max(version for module, version in story.contents if module == "ab")
    assert early
    assert all(early <= places(held) for _, held in story.contents["ab", last])


@pytest.mark.parametrize("found", PATHS_FOUND)
def test_stories_of_paths_that_ended_badly_do_so_no_more(found: str) -> None:
    Pathed(*PATHS_FOUND[found]).play()
