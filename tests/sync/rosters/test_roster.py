"""What is said about rosters is checked before it is believed."""

import msgspec
import pytest

from ictp2p.sync.rosters.roster import RosterFailed, RosterProposal, RosterReady
from tests.sync.rosters.roster_stage import STORE, A


@pytest.mark.parametrize(
    "fields",
    [
        [62, [0, 1, [A], STORE, 0]],
        [62, [1, 0, [A], STORE, 0]],
        [62, [1, 1, [], STORE, 0]],
        [62, [1, 1, [A] * 4097, STORE, 0]],
        [62, [1, 1, [A], "", 0]],
        [62, [1, 1, [A], "x" * 301, 0]],
        [62, [1, 1, [A], STORE, -1]],
        [61, True, -1, 0, 0, 0, 0, ""],
        [61, 1, 0, 0, 0, 0, 0, ""],
        [63, 1, 2**62],
    ],
)
def test_the_decoder_refuses_what_cannot_be(fields):
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(msgspec.msgpack.encode(fields), type=RosterReady | RosterProposal | RosterFailed)
