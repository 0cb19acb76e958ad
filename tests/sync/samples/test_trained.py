from __future__ import annotations

import numpy as np
import torch

from ictp2p.sync.samples.leases import BLOCKS, DONE, EPOCH, Holding
from ictp2p.sync.samples.trained import Fate, Trained


def test_what_was_trained_during_a_round_is_not_trained_again_once_that_round_is_in_the_state() -> None:
    """The cluster's model is carried on with these steps in it: their samples would count twice."""
    trained, mine = Trained(), 2
    trained.lease(0, np.arange(4))
    trained.add([0, 1])
    trained.launch()
    trained.add([2])
    blocks = torch.tensor([DONE, DONE, mine, mine])
    assert trained.fate({EPOCH: 0}, {BLOCKS: blocks}, Holding(True, np.array([2, 3])), mine=True) is Fate.IN
    assert trained.state_dict()["consumed"] == [0, 1, 2]
    assert trained.left() == [3]
