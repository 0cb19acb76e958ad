"""What four processes do for several tests: one start of torch each is dear enough."""

from __future__ import annotations

import re
from typing import Any

import pytest
from torch.distributed import TCPStore

from tests.torch_backend import ranks
from tests.torch_backend.examples import RUNS, examples
from tests.torch_backend.training import everything

pytestmark = [pytest.mark.real, pytest.mark.timeout(150)]


def run(place: str, ports: list[int]) -> dict[str, Any]:
    """In each process: what trains, then the examples."""
    return {"training": everything(place), "examples": examples(ports)}


@pytest.fixture(scope="module")
def four_ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each of them found."""
    folder = tmp_path_factory.mktemp("four_ranks")
    stores = [TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False) for _ in RUNS]
    ports = [store.port for store in stores]
    return ranks.run(run, 4, folder, place=str(folder / "checkpoint"), ports=ports)


def test_what_trains_on_process_groups_trains_on_ours(four_ranks: list[dict[str, Any]]) -> None:
    for each in four_ranks:
        found = dict(each["training"])
        assert found.pop("backend") == "ictp2p"
        kinds = ("ddp", "hook", "fsdp1", "fsdp2", "hsdp", "dcp", "functional", "beside_gloo")
        assert found == dict.fromkeys(kinds, True)


def test_every_rank_ends_with_the_same_parameters_and_has_learned(four_ranks: list[dict[str, Any]]) -> None:
    ddp, fsdp2, hsdp, lanes, ring, server = zip(*(each["examples"] for each in four_ranks), strict=True)
    for texts in (ddp, hsdp):
        assert len({text.partition("weights")[2] for text in texts}) == 1
    assert all("the same as the other cluster: True" in text for text in lanes)
    assert all("loaded what was saved: True" in text for text in fsdp2)
    assert all("'dp_replicate': 'ictp2p', 'dp_shard': 'gloo'" in text for text in hsdp)
    for texts in (ring, server):
        assert len({tuple(re.findall(r"parameters (\w+)", text)) for text in texts}) == 1
        assert all(len(re.findall("everywhere", text)) == 2 for text in texts)
    for text in (*ddp, *fsdp2, *hsdp, *ring, *server):
        first, *_, last = [float(loss) for loss in re.findall(r"loss ([\d.]+)", text)]
        assert last < first
