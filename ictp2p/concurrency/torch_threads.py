"""How many threads torch takes for what a thread asks of it.

Torch divides an operation on more than 32768 elements among threads, as many as there are cores if nobody says
otherwise, and each thread that asks has a team of its own. That is for whoever has the cores to itself. A loop that
moves tensors for a training has not: what it asks of a chunk ends when the last of its team has been given a core, and
those who are done spin until then, on cores on which others compute. With codecs that cost two peers on a host of two
cores three times the time, and three times the CPU (docs/experiments.md, "Threads of torch in the peer's loop").

OpenMP has that number for each thread. `torch.set_num_threads` sets the asking thread's, and also the one that
threads begin with which have not used torch yet: that one is put back, by a thread that ends with it.
"""

from __future__ import annotations

import threading
from contextlib import suppress

import torch


def compute_alone() -> None:
    """Have torch compute what this thread asks for in this thread. Others keep what they have, and so do those to come.

    Nothing is changed if no thread can be started.
    """
    usual = torch.get_num_threads()
    if usual == 1:
        return
    alone = threading.Event()

    def restore() -> None:
        alone.wait()
        torch.set_num_threads(usual)

    with suppress(RuntimeError):
        restoring = threading.Thread(target=restore, name="ictp2p torch threads", daemon=True)
        restoring.start()
        torch.set_num_threads(1)
        alone.set()
        restoring.join()
