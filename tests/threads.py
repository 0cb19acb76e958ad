"""Which threads are left, for tests that end something: their names, and nothing of the threads of other tests.

To count threads is not enough: one that an earlier test left, and that idles for a while, may end meanwhile, and then
the count is right where one too many lives, or wrong where all is well.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Threads:
    """The threads that live now, to ask later which are more."""

    before: frozenset[threading.Thread] = field(default_factory=lambda: frozenset(threading.enumerate()))

    def more(self) -> list[str]:
        """The names of those that live and did not."""
        return sorted(thread.name for thread in set(threading.enumerate()) - self.before)

    def ended(self) -> list[str]:
        """The names of those that lived and do not."""
        return sorted(thread.name for thread in self.before - set(threading.enumerate()))
