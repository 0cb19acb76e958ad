"""The data connections of one peer, and what lies between them and its control plane.

`bulk` moves bytes and knows neither cards nor routes; the stack knows those and moves no tensor. Here the one asks the
other, in both directions. Downwards: with whom a key is agreed and where somebody can be dialed stands in the cards
that gossip spread, who may be a relay in the routes, and who cannot be dialed is invited over the control connections.
Upwards: what each transfer showed of its link becomes a measurement, since nothing else tells a bandwidth.

Whoever answers proves that the key of a card is its own, wherever the bytes pass through, so a relay carries what it
cannot read, and who spreads another's card with a key of its own is not believed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from ictp2p.bulk import Agreed, Bulk, BulkProfile
from ictp2p.config import Config
from ictp2p.core.packets import Channel
from ictp2p.edge.network import Network
from ictp2p.edge.opening import open_bulk
from ictp2p.edge.security import Security
from ictp2p.errors import HandshakeFailed, IctError, NetworkError, PeerClosed, Unreachable
from ictp2p.gossip.links import ProbeWanted
from ictp2p.identity import Identity, check_bulk_proof
from ictp2p.runtime.driver import Driver
from ictp2p.telemetry import Telemetry
from ictp2p.types import ClusterId, PeerId, Transfer

_TRANSFER: Final = 1 << 28
"""Bytes of the transfers that a relay is chosen for: a connection is opened before its first, and kept for many."""


class DataPlane:
    """One peer's bulk connections, bound to its stack.

    Args:
        config: timeouts, room, whether to seal, and the ceiling on what is sent.
        identity: agrees on keys.
        driver: runs the stack.
        network: where to dial.
        security: names the mesh in the preamble of each connection, and knows what relays ask for.
        telemetry: counts bytes, and is told what failed.
        random_bytes: gives nonces and tickets.
    """

    def __init__(
        self,
        config: Config,
        identity: Identity,
        driver: Driver,
        network: Network,
        security: Security,
        telemetry: Telemetry,
        random_bytes: Callable[[int], bytes],
    ) -> None:
        self.core = driver.core
        self._cluster = config.cluster_id
        waits = self._waits = config.global_timeouts
        self._identity = identity
        self._driver = driver
        self._network = network
        self._fingerprint = security.fingerprint
        self._telemetry = telemetry
        self._unmeasured: dict[ClusterId, PeerId] = {}
        """Which clusters' last probe failed, and who led them."""
        self.bulk = Bulk(
            identity.peer_id,
            self._keys,
            self._dial,
            profile=BulkProfile(
                stall=waits.stall,
                handshake=waits.connect,
                sealed=config.encrypt,
                share_memory=config.share_memory,
                room=config.room,
                ceiling=config.bulk_rate,
            ),
            ask_dial=self._ask_dial,
            relays=self._relays,
            on_transfer=self._transferred,
            clock=driver.clock,
            random_bytes=random_bytes,
            membership=security.membership,
            shrink=network.shrink,
            unlike=self._differs,
        )
        self._encrypts = config.encrypt
        self._unlike: set[ClusterId] = set()
        """Clusters with whose sealing ours does not go, of which people were told."""

    # ------------------------------------------------------------ what the stack wants of the connections

    async def probe(self, wanted: ProbeWanted) -> None:
        """Measure the link to a neighbour, if it has a leader; that it failed twice in a row is told, and no error.

        Once is no news: who was probed has died, which is told anyway, or the line is slow, and the next probe shorter.
        That this peer is closed under it is no failure: the warning would be of a neighbour that is well.
        """
        leader = self.core.directory.leader_of(wanted.neighbour)
        if leader is None:
            return
        try:
            await self.bulk.probe(leader, wanted.bytes, timeout=min(wanted.seconds, self._waits.complete))
        except PeerClosed:
            return
        except NetworkError as error:
            if self._unmeasured.get(wanted.neighbour) == leader:
                self._telemetry.event("warning", text=f"probe of {wanted.neighbour} failed: {error}")
            self._unmeasured[wanted.neighbour] = leader
        else:
            self._unmeasured.pop(wanted.neighbour, None)

    async def answer(self, peer: PeerId, ticket: bytes) -> None:
        """Dial a peer that cannot dial us and asked for it; that it failed is told, and no error."""
        try:
            await self.bulk.answer_ticket(peer, ticket)
        except PeerClosed:  # as for a probe
            return
        except IctError as error:
            self._telemetry.event("warning", text=f"{peer} asked to be dialed, in vain: {error}")

    # ------------------------------------------------------------ what the connections want of the stack

    def _keys(self, peer: PeerId, context: bytes) -> Agreed:
        card = self.core.directory.peers.get(peer)
        if card is None:
            raise HandshakeFailed(f"no card of {peer} is known, and so no key to agree on")
        keys = self._identity.bulk_key(card.bulk_public, context)
        return Agreed(*keys, self._identity.bulk_proof, partial(check_bulk_proof, peer, card.bulk_public))

    def _differs(self, peer: PeerId) -> None:
        """Tell people, once of each cluster: no tensor ever passes, and rounds go on without one of the two."""
        cluster = self.core.directory.cluster_of(peer)
        if cluster is not None and cluster not in self._unlike:
            self._unlike.add(cluster)
            here, there = ("true", "false") if self._encrypts else ("false", "true")
            text = f"no tensors pass between this peer, with encrypt = {here}, and {peer} of {cluster}, with {there}"
            self._telemetry.event("warning", text=f"{text}: give all peers of the mesh the same", cluster=cluster)

    async def _dial(self, peer: PeerId, timeout: float) -> asyncio.Transport:
        address = self.core.directory.endpoint(peer)
        if address is None:
            raise Unreachable(f"{peer} has no address that could be dialed")
        return await open_bulk(self._network, address, self._fingerprint, timeout=timeout)

    def _ask_dial(self, peer: PeerId, ticket: bytes) -> None:
        if self.core.directory.reached_at(peer) is None:
            raise Unreachable(f"{peer} could not dial us if it was asked to: we have no address for it")
        self._driver.execute(self.core.invite(peer, ticket, self._driver.clock()))

    def _relays(self, peer: PeerId) -> Sequence[PeerId]:
        """Peers that may lead to `peer`: the next hop of the route that is best for a model, then any neighbour.

        Behind them `peer` itself, if nothing is heard of it though it is one.
        """
        hop, silent = self.core.relay(peer, _TRANSFER), self.core.silent()
        first = [hop] if hop is not None and hop != peer else []
        others = [p for p in self.core.neighbours() if p not in (*first, *silent, peer)]
        return [*first, *others, *([peer] if peer in silent else [])]

    def _transferred(self, peer: PeerId, transfer: Transfer) -> None:
        cluster = self.core.directory.cluster_of(peer)
        self._telemetry.count(f"bulk_bytes_{transfer.direction}", transfer.size)
        if cluster is not None and cluster != self._cluster and transfer.seconds > 0:
            links = self.core.m.links
            if transfer.direction == "out" and self.bulk.probing.undecided(peer, transfer.size, transfer.seconds):
                links.probe_again(cluster)
            self._driver.call(Channel.LINKS, lambda now: links.transferred(cluster, transfer, now))
