"""The rules of `ictp2p/edge/security.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "key-in-memory-or-nowhere",
        "Where files in memory are forbidden, OpenSSL reads the key from one that is gone at once.",
        "                path = held.enter_context(_file_in_folder(content))\n",
        "                raise error\n",
        ("edge/test_security.py::test_no_key_is_left_on_disk",),
    ),
    Mutation(
        "certificate-optional",
        "Nobody comes in without a certificate of the mesh.",
        "context.verify_mode = ssl.CERT_REQUIRED",
        "context.verify_mode = ssl.CERT_REQUIRED if side == ssl.PROTOCOL_TLS_CLIENT else ssl.CERT_OPTIONAL",
        ("edge/test_security.py::test_a_dialer_without_a_certificate_is_refused",),
    ),
)
