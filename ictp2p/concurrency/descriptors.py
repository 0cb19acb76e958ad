"""The descriptors 0, 1 and 2 are nothing of ours, also in a program that was started without them.

POSIX gives what is opened the lowest number that is free. `nohup python train.py <&-` leaves 0 free, and some services
are started without any of the three. What we open first would then get a number that everybody takes for a standard
stream: libuv ends the process, with an assertion, when it is to close one of those; a line that any library writes to
standard error would go into a connection, or a file of the data folder; and a child takes its streams by these numbers.
So whoever opens what a peer begins with, its loop or the line to its process, has all three taken before, as sshd does.
"""

from __future__ import annotations

import os

_STANDARD = 2
"""The highest number of a standard stream: that of standard error."""


def spare_standard_streams() -> None:
    """Have whatever is opened from now on get a number above 2.

    What was closed is nothing then, to read and to write, but for children: they find it as the program found it.

    Raises:
        OSError: this process has no more descriptors.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) <= _STANDARD:
        pass
    os.close(number)
