"""Numbers of the bulk connections, and what they cost when raised."""

from __future__ import annotations

from dataclasses import dataclass

from ictp2p.collectives.running.windows import ROOM_BYTES


@dataclass(frozen=True, slots=True)
class BulkProfile:
    """Numbers of the bulk connections."""

    stall: float = 5.0
    """Seconds without a byte, either way, after which a peer that owes or is owed some counts as lost. Detection takes
    this long, plus a quarter; lower than a peer's longest pause (a garbage collection, a held GIL), it is wrong."""
    handshake: float = 5.0
    """Seconds for one way of connecting, hellos included."""
    patience: float = 1.0
    """Seconds that the higher id leaves the lower one to dial, where both need the connection; and that one way to a
    peer has before the next one is tried beside it. Lower than some round trips makes connections that are not used."""
    rate: float | None = None
    """Bytes per second that each connection may send; None: as much as it takes."""
    ceiling: float | None = None
    """Bytes per second of tensors that all connections together may send; None: as much as they take. Lower leaves more
    of a line to others."""
    probe: float = 2.0
    """Seconds after which a probe ends, whatever is left of it. It outgrows slow start by then; more only keeps a slow
    link busy for longer."""
    stripes: bool = True
    """Several connections to a peer to which they were seen to carry more than one, at most 16 (`stripes`). Without it
    one."""
    sealed: bool = True
    """AES-128 on all bodies, as both ends have it cheaper (`ciphers`). Costs 0.2 to 0.4 CPU s per GB; both ends must
    say the same."""
    share_memory: bool = True
    """Bodies for a peer of the same user on the same host go through memory that both have mapped, in clear (`shared`).
    Costs each end 16 MiB for each such peer and direction; without it they go over loopback."""
    rings: int = 8
    """To how many of them: 128 MiB. What goes to more goes over loopback."""
    high_water: int = 1024 * 1024
    """Bytes beyond the kernel's own buffer that a transport may hold before we stop writing."""
    room: int = ROOM_BYTES
    """Bytes that a plan may ask us to keep for contributions. Less makes sums over long ways slower, more costs it."""
    half_open: int = 64
    """Accepted connections that have not finished their handshake."""
    served: int = 8
    """Requests of one kind that are served at a time, where the kind has no limit of its own (`hub`); of each
    connection (`desk`), for who fetches over several asks over each. A peer may have `pool.MOST_OF_ONE` of them."""
    relayed: int = 32
    """Connections of others that are relayed at a time; 0: do not relay."""
