"""The rules of `ictp2p/gossip/window.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "probe-is-one-of-many",
        "What a link has carried when it had its lines for itself it can carry, whatever its share in rounds was.",
        "((seconds >= self._profile.long and not app_limited) or (alone and rate > known))",
        "seconds >= self._profile.long and not app_limited",
        ("gossip/test_link_bandwidth.py::TestBandwidth::test_or_after_a_faster_probe_which_had_the_lines_for_itself",),
    ),
    Mutation(
        "cut-short-is-one-of-many",
        "A probe that a round cut short shows that a link has recovered, where it does.",
        "(alone and rate > known)",
        "(alone and rate > known and not app_limited)",
        (
            "gossip/test_link_probes.py::TestProbes::"
            "test_a_probe_that_a_round_cut_short_counts_where_it_showed_that_the_link_has_recovered",
        ),
    ),
    Mutation(
        "slow-probe-believed-alone",
        "A short probe that was disturbed lowers nothing by itself.",
        "(alone and rate > known)",
        "alone",
        ("gossip/test_link_bandwidth.py::TestBandwidth::test_and_not_after_a_slower_one_that_was_short",),
    ),
    Mutation(
        "long-sample-is-one-of-many",
        "A full-speed transfer that lasted tells of a changed link alone: the next round is planned on it.",
        "((seconds >= self._profile.long and not app_limited) or (alone and rate > known))",
        "(alone and rate > known)",
        ("gossip/test_link_bandwidth.py::TestBandwidth::test_or_after_one_that_lasted",),
    ),
    Mutation(
        "long-wait-taken-for-a-slow-link",
        "A transfer that waited for its application, however long, never lowers an estimate.",
        "if app_limited and known is not None and rate <= known:",
        "if app_limited and known is not None and rate <= known and seconds < 5.0:",
        ("gossip/test_link_bandwidth.py::TestBandwidth::test_an_app_limited_transfer_never_lowers_an_estimate",),
    ),
    Mutation(
        "idle-sender-taken-for-a-link-that-became-slow",
        "Of the two samples that begin a slower window, neither waited for its application.",
        " and not (one.app_limited or two.app_limited)",
        "",
        ("gossip/test_link_bandwidth.py::TestBandwidth::test_an_app_limited_transfer_never_lowers_an_estimate",),
    ),
)
