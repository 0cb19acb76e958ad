"""The rules of `ictp2p/runtime/data_folder.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "lost-chain-not-missed",
        "Who would found a mesh and has led in one has lost its chain.",
        "(led is not None and founds) or ",
        "",
        (
            "runtime/test_data_folder.py::test_a_lost_chain_is_missed_where_it_was_found_before_or_a_mesh_would_be_founded",
        ),
    ),
    Mutation(
        "chain-of-a-former-life-not-missed",
        "A chain that a former life found is missed once it is gone.",
        "        return acceptor.KEY\n    later",
        "        return acceptor.KEY if founds else None\n    later",
        (
            "runtime/test_data_folder.py::test_a_lost_chain_is_missed_where_it_was_found_before_or_a_mesh_would_be_founded",
        ),
    ),
    Mutation(
        "lost-file-not-missed",
        "A file without which those after it would not be there has been lost.",
        "        if later and not here:\n",
        "        if False:\n",
        ("runtime/test_data_folder.py::test_what_is_gone_is_missed_where_something_later_is_there",),
    ),
    Mutation(
        "decisions-of-any-mesh",
        "A data folder that holds decisions is refused under another token.",
        "if bound is not None and bound != fingerprint and disk.load(acceptor.KEY) is not None:",
        "if False:",
        ("test_peer_folders.py::test_a_data_folder_stays_in_its_mesh_until_somebody_says_otherwise",),
    ),
    Mutation(
        "folder-of-another-cluster",
        "A data folder serves the cluster that it was made for, and no other.",
        "    elif home != config.cluster.encode():\n",
        "    elif not home:\n",
        ("test_peer_folders.py::test_a_data_folder_stays_in_its_cluster",),
    ),
)
