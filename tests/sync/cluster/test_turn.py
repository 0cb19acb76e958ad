"""Who of a cluster is where its program's schedule should be."""

from __future__ import annotations

from ictp2p.sync.cluster.turn import Turn


def test_who_is_left_is_what_others_become_like_however_far_off_it_was() -> None:
    """Else nobody would be where it should be once a break finds them apart, and all become like a wrong one."""
    left, joined = Turn(off=-1), Turn()
    left.healed([left], 0, 0)
    assert (left.off, left.again) == (0, False)
    left.programs = True  # it is in a round when the other comes
    said = [Turn.unpack(each.pack()) for each in (left, joined)]
    for rank, turn in enumerate((left, joined)):
        turn.healed(said, 0, rank)
    assert [(turn.off, turn.again) for turn in (left, joined)] == [(0, True), (-1, True)]
