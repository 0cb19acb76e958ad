"""What a process of a test tells the test: a line of JSON each."""

import faulthandler
import json
import signal
import sys
import time
from typing import Any

faulthandler.register(signal.SIGUSR1)  # the test asks a process that hangs where it is


def tell(what: str, **fields: Any) -> None:
    sys.stdout.write(json.dumps({"what": what, "at": time.monotonic(), **fields}, default=str) + "\n")
    sys.stdout.flush()
