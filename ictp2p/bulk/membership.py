"""Who may have a connection relayed: whoever knows what only members know.

A relay serves before any key is agreed with it, and what it serves costs it a connection of its own. The name of the
mesh stands in clear at the beginning of every connection, so it proves nothing. Hence the hello of whoever asks carries
a MAC under a key of the whole mesh, in the place where others have a ticket. Nothing that a relay changes is under it,
so it holds for all relays of a way. Each accepts it once: who has seen one passing by cannot occupy more than one place
with it.
"""

from __future__ import annotations

import hashlib
import hmac
from collections import OrderedDict
from dataclasses import replace

from ictp2p.bulk.frames import Hello

REMEMBERED = 4096
"""Hellos that a relay tells from new ones: a hundred times as many as it has places."""


class Membership:
    """One peer's proof, and its eye on those of others.

    Args:
        key: that all members know and nobody else, at most 64 bytes; empty: nobody is relayed for.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._seen: OrderedDict[bytes, None] = OrderedDict()

    def proven(self, hello: Hello) -> Hello:
        """Give a hello with the proof that it comes from a member."""
        return replace(hello, ticket=self._mac(hello))

    def admits(self, hello: Hello) -> bool:
        """Say whether a member has made this hello, and we see it for the first time."""
        if not self._key or not hmac.compare_digest(hello.ticket, self._mac(hello)) or hello.ticket in self._seen:
            return False
        self._seen[hello.ticket] = None
        if len(self._seen) > REMEMBERED:
            self._seen.popitem(last=False)
        return True

    def _mac(self, hello: Hello) -> bytes:
        said = bytes.fromhex(hello.source + hello.target) + hello.nonce + bytes([hello.sealed])
        return hashlib.blake2b(said, key=self._key, digest_size=16, person=b"ictp2p relaying").digest()
