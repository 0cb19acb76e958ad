"""The rules of `ictp2p/sync/rounds/voters.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "twice-a-voter",
        "Who is named twice is one voter.",
        "newcomers = dict.fromkeys(v for column in columns for v in column if v in chosen and v not in kept)",
        "newcomers = [v for column in columns for v in column if v in chosen and v not in kept]",
        ("sync/rounds/test_voters.py::test_who_stands_in_two_clusters_or_twice_in_one_is_a_voter_once",),
    ),
    Mutation(
        "who-leads-stays-behind",
        "The first of the voters, who plans, is one that leads its cluster, if any of them does.",
        "    first = current[0] if not leading or current[0] in leading else leading[0]",
        "    first = current[0]",
        ("sync/rounds/test_voters.py::test_who_leads_comes_to_the_front_once_it_votes",),
    ),
    Mutation(
        "first-is-a-newcomer",
        "A newcomer to the voters is never their first, who decides where half is left.",
        "first = next((v for v in order if v in kept), order[0])",
        "first = order[0]",
        ("sync/rounds/test_voters.py::test_a_newcomer_is_never_the_first_if_anybody_stays",),
    ),
)
