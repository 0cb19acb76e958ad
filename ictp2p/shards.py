"""Tokens for the meshes of a model's shards.

Each rank of a sharded cluster averages its shard with the same shard of the other clusters, in a mesh of its own. A
mesh is who knows its token; so each shard has one, made from the training's.
"""

from __future__ import annotations

import hashlib

from ictp2p.errors import ConfigError, shown

_PERSON = b"ictp2p shard"
_SHARDS = 2**64


def shard_token(token: str, shard: int) -> str:
    """The token of the mesh of one shard.

    Args:
        token: of the training, as `ictp2p token` gives; who knows it knows those of all shards, but not the reverse.
        shard: the rank within the cluster that holds it, from 0.

    Raises:
        ConfigError: the shard is not a whole number from 0 to 2**64 - 1, or the token is not text.
    """
    try:
        secret = token.encode()
    except (AttributeError, UnicodeEncodeError):  # nothing is repeated of it, also by what it came of
        secret = b""
    if not secret or not isinstance(token, str):
        raise ConfigError("token is not valid: it must be text in UTF-8, and not empty")
    if not isinstance(shard, int) or isinstance(shard, bool) or not 0 <= shard < _SHARDS:
        raise ConfigError(f"shard {shown(shard)} is not a whole number from 0 to 2**64 - 1")
    key = hashlib.sha512(secret).digest()
    return hashlib.blake2b(str(shard).encode(), key=key, person=_PERSON, digest_size=32).hexdigest()
