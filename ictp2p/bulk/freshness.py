"""Since when bbr's least round trip stands, as far as that can be told from outside: the kernel does not say.

bbr measures it again, with a pause, ten seconds after it was last renewed; who would prevent that has to know when that
was. Four things renew it (net/ipv4/tcp_bbr.c): to be given the connection; the end of such a pause; after ten seconds
the first acknowledgement, whatever it shows; and at any time one that shows less. Of the last two nothing is seen but
that the value has become another since it was last looked at. So it was renewed at some *earliest* moment, ten seconds
after which a pause may be due, and at some *latest*: who is silent until ten seconds after that is renewed by the first
acknowledgement of what is sent next.

To take one for the other costs a pause. A connection was taken to be as new as its first message after ten seconds,
and had been renewed by a shorter round trip some seconds before: so it was not renewed by that message, and paused in
the middle of what followed, for 0.3 of 1.8 s.
"""

from __future__ import annotations

EXPIRY = 10.0
"""Seconds after which bbr measures again: `bbr_min_rtt_win_sec`."""


class Freshness:
    """What is known of one connection's.

    Args:
        now: monotonic seconds; bbr has been given the connection.
    """

    def __init__(self, now: float) -> None:
        self.earliest = self.latest = now
        """When it was renewed, at the earliest and at the latest."""
        self._found: int | None = None
        """None: not looked at since; what came in the meantime may have shown less."""
        self._unsure = False
        """Whether what was sent since may have renewed it: with that it may have gone to another value and back."""
        self._looked = now

    def renewed(self, now: float) -> None:
        """Note that it is as new."""
        self.earliest = self.latest = self._looked = now
        self._found, self._unsure = None, False

    def looked(self, found: int, now: float, heard: float) -> None:
        """Note that it is `found` now (any unit); the last acknowledgement came at `heard`."""
        if found != self._found:
            self.earliest = self._looked
        if found != self._found or self._unsure:
            self.latest = max(self._looked, heard)
        self._found, self._looked, self._unsure = found, now, False

    def rested(self, now: float) -> None:
        """Note that a connection that was silent is about to send: what has surely expired is renewed by that.

        What may have expired may be, and may show the same as before.
        """
        if now >= self.latest + EXPIRY:
            self.renewed(now)
        elif now >= self.earliest + EXPIRY:
            self.latest, self._unsure = now, True
