"""Signal handlers at a place of one's choice: each place where Python may run one is visited, not hoped for.

Python runs the handlers of the main thread between two bytecodes, and looks for them after some only. So what a program
does has a finite number of places where a handler may come, and a property of all of them is tested at all of them.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, ModuleType
from typing import Any

WHERE = ("RESUME", "CALL", "JUMP_BACKWARD", "POP_JUMP_BACKWARD")
"""The bytecodes after which Python looks for signals."""


@contextmanager
def interrupted(at: int, handler: Callable[[], None], *modules: ModuleType) -> Iterator[list[int]]:
    """Run a handler in this thread at the place of that number in the code of `modules`; counts those it passed."""
    steps, last, files = [0], dict[FrameType, str](), {module.__file__ for module in modules}

    def trace(at_frame: FrameType, event: str, _: object) -> Any:
        if at_frame.f_code.co_filename not in files:
            return None
        at_frame.f_trace_opcodes = True
        if event == "opcode":
            before, last[at_frame] = last.get(at_frame, ""), dis.opname[at_frame.f_code.co_code[at_frame.f_lasti]]
            if before.startswith(WHERE):
                steps[0] += 1
                if steps[0] == at:
                    handler()
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield steps
    finally:
        sys.settrace(before)
        last.clear()  # a frame knows its tracer, which must not know the frame: what it holds is let go with it


def places(act: Callable[[], object], *modules: ModuleType) -> range:
    """The numbers of all places where a handler may come while `act` runs in the code of `modules`."""
    with interrupted(0, ctrl_c, *modules) as steps:
        act()
    return range(1, steps[0] + 1)


def ctrl_c() -> None:
    """What Python does by default."""
    raise KeyboardInterrupt
