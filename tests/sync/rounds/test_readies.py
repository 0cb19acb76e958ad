"""Who is in the next attempt, of those who are READY for something else than others are."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ictp2p.sync.messages import Ready
from ictp2p.sync.rounds.opening import Standing, elect_spec, rejections
from ictp2p.sync.rounds.readies import in_turn
from ictp2p.sync.values import FIRST_ROUND, SYNC_STATE, Spec
from ictp2p.types import ClusterId, PeerId

CALL = Spec("reduce", "all_reduce", "float32", 3, "avg", "none", b"float32[3]")
SECOND = Spec("gather", "all_gather", "uint8", 24, "sum", "none", b"float32[3]")
FIRST = Spec("barrier", "all_gather" + FIRST_ROUND, "uint8", 0, "sum", "none", b"float32[3]")
STATE = Spec("sync", SYNC_STATE, "uint8", 0, "sum", "none", bytes(64))
TRAINING = Spec("sync", "diloco", "float32", 3, "avg", "none", bytes(32))


def standing(specs: list[Spec]) -> Standing:
    readies = [Ready(0, 1, ClusterId(f"c{number}"), 1, 1.0, spec, None) for number, spec in enumerate(specs)]
    return {ready.cluster: (PeerId(ready.cluster), ready) for ready in readies}


@given(st.lists(st.sampled_from([FIRST, SECOND, CALL]), min_size=1, max_size=6))
def test_who_is_at_the_first_round_of_a_call_waits_while_others_are_at_its_second(specs: list[Spec]) -> None:
    """However many have just come: who is in the middle of a call was promised its end."""
    ready = in_turn(standing(specs))
    chosen = elect_spec(ready, None)
    assert chosen != FIRST or SECOND not in specs
    assert chosen == CALL or specs.count(CALL) <= max(specs.count(SECOND), specs.count(FIRST))
    refused = {spec for _, spec, _ in rejections(ready, chosen)}
    assert refused == {spec for spec in specs if spec != chosen and (spec, SECOND in specs) != (FIRST, True)}


@given(st.lists(st.sampled_from([FIRST, SECOND, CALL, STATE, TRAINING]), min_size=1, max_size=6))
def test_calls_wait_while_others_train(specs: list[Spec]) -> None:
    """Regression: where one of two clusters had ended its training and called, the other's ended with an error."""
    present = [ready.spec for _, ready in in_turn(standing(specs)).values()]
    if TRAINING in specs:
        assert present == [TRAINING] * specs.count(TRAINING)
    else:
        assert present == [spec for spec in specs if spec != FIRST or SECOND not in specs]
