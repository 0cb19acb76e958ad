"""What an observer makes of what it is told."""

from __future__ import annotations

import pytest

from ictp2p.errors import RemoteProtocolError
from ictp2p.status import _read


@pytest.mark.parametrize("document", [b"", b"\xff", b"[" * 100_000, b'{"a":' * 100_000, b"1" * 10_000, b"[]", b"1"])
def test_what_is_no_status_is_the_other_sides_error(document: bytes) -> None:
    """Regression: a document that was nested too deeply ended the command with a traceback."""
    with pytest.raises(RemoteProtocolError):
        _read(document)
