"""The rules of `ictp2p/bulk/freshness.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "first-message-renews-nothing",
        "A first message after ten seconds of silence renews what bbr knows, at no cost.",
        "            self.renewed(now)\n",
        "            pass\n",
        ("bulk/test_freshness.py::test_a_first_message_after_ten_seconds_of_silence_is_known_to_renew",),
    ),
    Mutation(
        "heard-until-now",
        "After its last acknowledgement nothing has renewed it.",
        "max(self._looked, heard)",
        "now",
        ("bulk/test_freshness.py::test_a_first_message_after_ten_seconds_of_silence_is_known_to_renew",),
    ),
    Mutation(
        "as-new-as-its-first-message",
        "What was renewed we do not know when is not renewed by the first message after a rest.",
        "if now >= self.latest + EXPIRY",
        "if now >= self.earliest + EXPIRY",
        ("bulk/test_renewal.py::test_what_bbr_knows_is_never_old_while_we_send",),
    ),
    Mutation(
        "renewed-by-the-same-unseen",
        "A first message may have renewed what may have expired, though it shows the same.",
        "            self.latest, self._unsure = now, True\n",
        "            pass\n",
        ("bulk/test_freshness.py::test_it_was_renewed_between_the_two",),
    ),
    Mutation(
        "there-and-back-unseen",
        "What a first message may have renewed may have become as short again as it was.",
        "        if found != self._found or self._unsure:",
        "        if found != self._found:",
        ("bulk/test_freshness.py::test_it_was_renewed_between_the_two",),
    ),
    Mutation(
        "shorter-round-trip-unseen",
        "A round trip that is less than the least renews it, at some time since the last look.",
        "        if found != self._found or self._unsure:",
        "        if self._unsure:",
        ("bulk/test_renewal.py::test_what_bbr_knows_is_never_old_while_we_send",),
    ),
    Mutation(
        "shorter-round-trip-is-new",
        "What has changed since the last look may have right after it.",
        "            self.earliest = self._looked\n",
        "            self.earliest = now\n",
        ("bulk/test_renewal.py::test_what_bbr_knows_is_never_old_while_we_send",),
    ),
)
