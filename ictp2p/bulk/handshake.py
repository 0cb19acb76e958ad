"""Two hellos, and what follows from them: who is at the other end, with which keys and cipher both go on.

Each end says who it is, for whom, and a fresh nonce. Both then derive their keys from what `KeyAgreement` knows of the
other and from the whole of both hellos (`frames.transcript`), so nobody on the way can have changed one, and no two
connections have a key in common. A hello proves nothing by itself. The proof is the first sealed frame, which only who
holds the keys can have made, and until it came a connection may say nothing else (`inbound`). In it stands that these
are the keys of the peer that was meant (`keys`).

An end that seals and one that does not refuse each other, in words, instead of guessing: who set one of both wrong has
to mend it. The cipher is the one that costs both together least; a relay that lied about costs would have changed the
transcript.
"""

from __future__ import annotations

from collections.abc import Callable

from ictp2p.bulk.ciphers import UNKNOWN, cheapest, measured
from ictp2p.bulk.connection import BulkConnection
from ictp2p.bulk.frames import MAX_HOPS, NO_TAG, Hello, Purpose, transcript
from ictp2p.bulk.keys import KeyAgreement
from ictp2p.bulk.refusals import refusal
from ictp2p.errors import HandshakeFailed, RemoteProtocolError
from ictp2p.types import PeerId


class Handshake:
    """One peer's part in its handshakes.

    Args:
        me: our id.
        keys: agrees on a connection's keys.
        sealed: whether bodies are sealed.
        random_bytes: gives nonces.
        unlike: told of who seals where we do not, or does not where we do.
    """

    def __init__(
        self,
        me: PeerId,
        keys: KeyAgreement,
        sealed: bool,
        random_bytes: Callable[[int], bytes],
        unlike: Callable[[PeerId], None] = lambda peer: None,
    ) -> None:
        self._me = me
        self._keys = keys
        self._sealed = sealed
        self._random_bytes = random_bytes
        self._unlike = unlike

    def hello(self, purpose: Purpose, peer: PeerId, *, ticket: bytes = NO_TAG, beside: bool = False) -> Hello:
        """Make what we say to `peer`; `beside`: of one more connection, which is ours alone."""
        hops = MAX_HOPS if purpose is Purpose.RELAY else 0
        costs = measured() if self._sealed else UNKNOWN
        return Hello(purpose, self._me, peer, self._random_bytes(32), ticket, self._sealed, hops, costs, beside)

    def answered(self, connection: BulkConnection, said: Hello, hello: Hello) -> None:
        """Go on with who answered what we said.

        Raises:
            HandshakeFailed: it is not who we asked for, or not known, or one of us seals and the other does not, or it
                has for itself what it did not ask for: we would find none for both ends here, and dial each time anew.
        """
        if (hello.source, hello.target) != (said.target, self._me):
            raise HandshakeFailed(f"{hello.source} answered for {said.target}")
        if hello.sealed != said.sealed:
            raise HandshakeFailed(f"{hello.source} has sealing {hello.sealed}, this peer {said.sealed}")
        if hello.beside and said.purpose is not Purpose.TICKET:
            raise HandshakeFailed(f"{hello.source} took for itself a connection that it had not asked for")
        keys = self._keys(hello.source, transcript(said, hello))
        connection.beside = said.beside or hello.beside
        cipher = cheapest(said.costs, hello.costs)
        connection.secure(hello.source, keys, cipher, seal_bodies=self._sealed)

    def answer(self, connection: BulkConnection, hello: Hello, *, beside: bool) -> None:
        """Answer who said `hello`; who may not come in is told why, and hung up on.

        `beside`: we had asked for it, as one more, which is ours alone.
        """
        own = self.hello(Purpose.ANSWER, hello.source, beside=beside)
        try:
            if hello.sealed != own.sealed:
                self._unlike(hello.source)
                raise HandshakeFailed("one side seals, one does not")
            keys = self._keys(hello.source, transcript(hello, own))
        except (HandshakeFailed, RemoteProtocolError) as error:
            connection.say(refusal(hello, str(error)))
            connection.hang_up(error)
            return
        connection.dialed, connection.ticket = False, hello.ticket
        connection.relayed, connection.beside = hello.purpose is Purpose.RELAY, hello.beside or beside
        connection.say(own)
        connection.secure(hello.source, keys, cheapest(hello.costs, own.costs), seal_bodies=own.sealed)
