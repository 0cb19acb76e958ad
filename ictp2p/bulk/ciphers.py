"""Which cipher seals the bodies of a connection: the one that costs its two ends least.

AES-GCM is as fast as copying where the processor encrypts four blocks at a time (VAES and AVX-512, which OpenSSL uses:
12 GB/s per core), and half as fast as AES-OCB where it does not (Zen 3: 2.6 and 5.2 GB/s). TLS clients choose between
AES and ChaCha20 by hardware for the same reason. Here nobody has to know processors: each process measures once, in a
millisecond, its hellos say what it found, and both ends take the lowest sum.

Whoever alters a hello on its way cannot bring two ends to a cipher that they would not take: the keys depend on both
hellos, so that they would not agree on them (`frames.transcript`). Nor is a key ever used with two ciphers.
"""

from __future__ import annotations

import enum
import functools
import time
from typing import TypeAlias

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, AESOCB3


class Cipher(enum.IntEnum):
    """An authenticated cipher with keys and tags of 128 bits and nonces of 96. Append only."""

    GCM = 0
    """AES-128-GCM (NIST SP 800-38D). Everybody has it."""
    OCB = 1
    """AES-128-OCB (RFC 7253). Some builds of OpenSSL leave it out."""


Costs: TypeAlias = tuple[int, int]
"""By cipher, in picoseconds per byte, at most `MOST`; 0: not offered."""
MOST = 2**16 - 1
UNKNOWN: Costs = (0, 0)
"""What is said by who seals nothing but the proof that it has the keys."""

_AEADS: dict[Cipher, type[AESGCM | AESOCB3]] = {Cipher.GCM: AESGCM, Cipher.OCB: AESOCB3}
_SAMPLE = 64 * 1024
_TURNS = 5


def aead(cipher: Cipher, key: bytes) -> AESGCM | AESOCB3:
    """Give `cipher` under `key`."""
    return _AEADS[cipher](key)


def cheapest(one: Costs, other: Costs) -> Cipher:
    """Choose for two ends, the same from either: the lowest sum, of equal ones the first; GCM if none is known."""
    both = [cipher for cipher in Cipher if one[cipher] and other[cipher]]
    return min(both, key=lambda cipher: one[cipher] + other[cipher], default=Cipher.GCM)


@functools.cache
def measured() -> Costs:
    """Measure what each costs in this process: the quickest of some turns, which no other program has held up."""
    quickest = dict.fromkeys(Cipher, 0.0)
    for cipher in [cipher for _ in range(_TURNS) for cipher in Cipher]:
        try:
            seconds = _seconds(cipher)
        except UnsupportedAlgorithm:
            continue
        quickest[cipher] = min(quickest[cipher] or seconds, seconds)
    gcm, ocb = (min(MOST, max(1, round(1e12 * each / _SAMPLE))) if each else 0 for each in quickest.values())
    return gcm, ocb


def _seconds(cipher: Cipher) -> float:
    sealing, body = aead(cipher, bytes(16)), bytearray(_SAMPLE + 16)
    sealing.encrypt_into(bytes(12), memoryview(body)[:_SAMPLE], b"", body)
    began = time.perf_counter()
    sealing.encrypt_into(bytes(12), memoryview(body)[:_SAMPLE], b"", body)
    return time.perf_counter() - began
