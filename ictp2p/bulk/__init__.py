"""The data plane: sealed, warm TCP connections between pairs of peers, beside the control connections.

Tensor bytes never share a connection with control messages, so a gigabyte cannot delay a heartbeat. One connection per
pair carries collectives, state transfers and probes at once, as tagged frames.
"""

from ictp2p.bulk.connection import BulkConnection
from ictp2p.bulk.hub import Bulk, OnTransfer
from ictp2p.bulk.keys import Agreed, KeyAgreement
from ictp2p.bulk.profile import BulkProfile
from ictp2p.bulk.reaching import AskDial, Dial, Relays
from ictp2p.bulk.streams import Handler, ProbeResult

__all__ = [
    "Agreed",
    "AskDial",
    "Bulk",
    "BulkConnection",
    "BulkProfile",
    "Dial",
    "Handler",
    "KeyAgreement",
    "OnTransfer",
    "ProbeResult",
    "Relays",
]
