from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import ictp2p
from ictp2p import torchrun
from ictp2p.disk import FileDisk
from ictp2p.errors import AddressInUse, ConfigError, Unreachable
from ictp2p.runtime import data_folder
from ictp2p.types import Address

WORKER = Path(__file__).with_name("torchrun_worker.py")
TOKEN = "0123456789abcdef0123456789abcdef"
RENDEZVOUS = ["--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0"]
ENVIRONMENT = {
    "TORCHELASTIC_RUN_ID": "My Job#7",
    "TORCHELASTIC_RESTART_COUNT": "2",
    "TORCHELASTIC_USE_AGENT_STORE": "True",
    "MASTER_ADDR": "192.0.2.1",
    "MASTER_PORT": "29500",
    "RANK": "5",
    "LOCAL_RANK": "1",
    "WORLD_SIZE": "8",
}


@pytest.fixture(scope="module")
def agents() -> Iterator[dict[str, str]]:
    """The environment of a job whose agent keeps a store."""
    from torch._C._distributed_c10d import TCPStore

    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    yield {**ENVIRONMENT, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port)}
    del store


@pytest.fixture
def inside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("inside")
def test_the_job_names_the_cluster_and_the_worker() -> None:
    config = ictp2p.Config.lan(token=TOKEN, data_dir="/data", advertise="203.0.113.9:9000")
    assert config.cluster == "torchrun-my-job-7-f20915cf"
    assert config.rank == 5
    assert (config.listen, config.advertise) == ("[::]:7451", "203.0.113.9:9001")
    assert config.data_dir == "/data/rank-5"
    assert ictp2p.Config.local(token=TOKEN).listen == "127.0.0.1:0"


@given(
    st.lists(
        st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=80)
        | st.text("ab-", min_size=45, max_size=55),
        min_size=2,
        max_size=2,
        unique=True,
    )
)
@example(["job-" + "x" * 60 + "-oslo", "job-" + "x" * 60 + "-tokyo"])
@example(["\u8bad\u7ec3\u4e00", "\u8bad\u7ec3\u4e8c"])
@example(["Job", "job"])
def test_two_jobs_of_two_names_are_two_clusters(runs: list[str]) -> None:
    """Regression: ids that differed in capitals, in other alphabets or late in a long one gave one cluster's name."""
    jobs = [torchrun.Job.of({**ENVIRONMENT, "TORCHELASTIC_RUN_ID": run}) for run in runs]
    names = {job.cluster for job in jobs if job is not None}
    assert len(names) == 2


def test_a_job_whose_id_is_a_name_keeps_it() -> None:
    job = torchrun.Job.of({**ENVIRONMENT, "TORCHELASTIC_RUN_ID": "llama-70b.2"})
    assert job is not None
    assert job.cluster == "torchrun-llama-70b.2"


@pytest.mark.usefixtures("inside")
@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"listen": 7}, "listen: 7 is not valid: it must be of type str"),
        ({"listen": "x"}, "listen: address 'x' is not valid"),
        ({"listen": "0.0.0.0:65535"}, "listen: '0.0.0.0:65535' leaves local rank 1 no port"),
        ({"advertise": 7}, "advertise: 7 is not valid: it must be of type str"),
        ({"advertise": "h:65535"}, "advertise: 'h:65535' leaves local rank 1 no port"),
        ({"data_dir": ""}, "data_dir: '' is not valid: it must name a folder, or be left out"),
        ({"data_dir": 7}, "data_dir: 7 is not valid: it must be of type str"),
    ],
)
def test_a_bad_value_is_named_inside_torchrun_as_outside(values: dict[str, Any], words: str) -> None:
    """Regression: what torchrun completes was taken apart before it was checked."""
    with pytest.raises(ConfigError, match=words):
        ictp2p.Config.lan(token=TOKEN, **values)


@pytest.mark.usefixtures("inside")
def test_a_port_that_the_system_chooses_and_a_peer_that_only_dials_stay_so() -> None:
    config = ictp2p.Config.lan(token=TOKEN, listen="127.0.0.1:0", advertise="none")
    assert (config.listen, config.advertise) == ("127.0.0.1:0", "none")


@pytest.mark.usefixtures("inside")
def test_who_names_the_cluster_is_left_alone() -> None:
    config = ictp2p.Config.lan(cluster="oslo", token=TOKEN, data_dir="/data")
    assert (config.cluster, config.rank, config.data_dir, config.listen) == ("oslo", 0, "/data", "[::]:7450")
    assert torchrun.rendezvous(config, os.environ) is None


def test_outside_torchrun_a_cluster_must_be_named() -> None:
    with pytest.raises(ConfigError, match="'cluster' must be given"):
        ictp2p.Config.local(token=TOKEN)
    assert torchrun.Job.of({}) is None


@pytest.mark.parametrize("name", ["RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"])
def test_half_an_environment_is_an_error_that_names_what_is_missing(name: str) -> None:
    without = {key: value for key, value in ENVIRONMENT.items() if key != name}
    with pytest.raises(ConfigError, match=name):
        torchrun.Job.of(without)
    if name != "MASTER_ADDR":
        with pytest.raises(ConfigError, match=f"{name}='five' is not a whole number"):
            torchrun.Job.of({**ENVIRONMENT, name: "five"})


@pytest.mark.parametrize("run", ["none", ""])
def test_a_run_that_nobody_named_gets_a_name_that_no_other_job_has(run: str, agents: dict[str, str]) -> None:
    job = torchrun.Job.of({**agents, "TORCHELASTIC_RUN_ID": run, "RANK": "0"})
    assert job is not None
    config = ictp2p.Config.local(cluster=job.cluster, token=TOKEN)
    names = {torchrun.Rendezvous(job, 1.0).before(config, lambda folder: None).cluster for _ in range(3)}
    assert len(names) == 3


@pytest.mark.parametrize("run", ["none", ""])
def test_a_run_that_nobody_named_keeps_the_name_that_its_folder_has(
    run: str, tmp_path: Path, agents: dict[str, str]
) -> None:
    """Regression: torchrun started the workers again, as it does after a death, and rank 0 drew another name."""
    job = torchrun.Job.of({**agents, "TORCHELASTIC_RUN_ID": run, "RANK": "0"})
    assert job is not None
    config = ictp2p.Config.local(cluster=job.cluster, token=TOKEN, data_dir=tmp_path / "rank-0")
    drawn = torchrun.Rendezvous(job, 1.0).before(config, data_folder.home)
    with FileDisk(drawn.data_dir) as disk:
        data_folder.bind(disk, drawn)
    assert torchrun.Rendezvous(job, 1.0).before(config, data_folder.home).cluster == drawn.cluster
    named = torchrun.Job.of({**agents, "RANK": "0"})
    assert named is not None
    assert torchrun.Rendezvous(named, 1.0).before(config, data_folder.home).cluster == named.cluster


def rendezvous(environment: dict[str, str], timeout: float = 10.0, **given: str) -> torchrun.Rendezvous:
    job = torchrun.Job.of({**environment, **given})
    assert job is not None
    return torchrun.Rendezvous(job, timeout)


@pytest.mark.real
def test_ranks_meet_in_the_store_though_their_agents_have_counted_other_restarts(agents: dict[str, str]) -> None:
    """Regression: an agent counts no death elsewhere, so that its workers asked for what a dead rank 0 had left."""
    config = ictp2p.Config.local(cluster="torchrun-my-job-7-f20915cf", token=TOKEN, join=("192.0.2.9:1",))
    zero = torchrun.rendezvous(config, {**agents, "RANK": "0", "TORCHELASTIC_RESTART_COUNT": "1"})
    one = torchrun.rendezvous(config, {**agents, "RANK": "1", "TORCHELASTIC_RESTART_COUNT": "0"})
    assert zero is not None
    assert one is not None
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        zero.after(zero.before(config, data_folder.home), Address("0.0.0.0", port))
        assert one.before(config, data_folder.home).join == (f"127.0.0.1:{port}", "192.0.2.9:1")


@pytest.mark.real
def test_what_an_earlier_rank_0_has_left_in_the_store_leads_nobody_astray(agents: dict[str, str]) -> None:
    config = ictp2p.Config.local(cluster="torchrun-my-job-7-f20915cf", token=TOKEN)
    zero, one = (rendezvous(agents, RANK=rank) for rank in ("0", "1"))
    hasty = rendezvous(agents, 0.3, RANK="1")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        dead = Address("127.0.0.1", listening.getsockname()[1])
        zero.after(config, dead)
        assert one.before(config, data_folder.home).join == (str(dead),)
    with pytest.raises(Unreachable, match=f"rank 0 of torchrun job 'My Job#7' did not start .* at {dead}"):
        hasty.before(config, data_folder.home)
    zero.before(config, data_folder.home)
    with pytest.raises(Unreachable, match=r"rank 0 of torchrun job 'My Job#7' did not start its peer within 0\.3 s$"):
        hasty.before(config, data_folder.home)


@pytest.mark.real
def test_who_listens_by_now_where_an_earlier_rank_0_did_is_not_taken_for_it(
    agents: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = ictp2p.Config.local(cluster="torchrun-my-job-7-f20915cf", token=TOKEN)
    zero, one = (rendezvous(agents, RANK=rank) for rank in ("0", "1"))
    dead, living, asked = Address("127.0.0.1", 1), Address("127.0.0.1", 2), list[Address]()

    def listens(address: Address) -> bool:
        asked.append(address)
        if address == dead:  # the new rank 0 comes just now, and a worker of its takes the dead one's port
            zero.after(zero.before(config, data_folder.home), living)
        return True

    monkeypatch.setattr(torchrun, "_listens", listens)
    zero.after(config, dead)
    assert one.before(config, data_folder.home).join == (str(living),)
    assert asked == [dead, living]


def test_a_store_that_has_gone_is_said_to_have_gone_whatever_it_was_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: where rank 0 tells the others its address an error of torch's own left `Peer.start`."""
    from torch.distributed import DistNetworkError

    class Gone:
        def ended(self, *_: object) -> None:
            raise DistNetworkError("Broken pipe")

        delete_key = set = get = ended

    told = torchrun.Rendezvous(torchrun.Job.of({**ENVIRONMENT, "RANK": "0"}), 3.0)  # type: ignore[arg-type]
    monkeypatch.setattr(told, "_store", Gone())
    config = ictp2p.Config.local(cluster="c", token=TOKEN)
    for ask in (
        lambda: told.before(config, lambda _: None),
        lambda: told.after(config, Address("127.0.0.1", 7000)),
    ):
        with pytest.raises(Unreachable, match=r"torchrun's store at 192\.0\.2\.1:29500 did not answer: Broken pipe"):
            ask()


@pytest.mark.real
def test_a_peer_whose_start_failed_finds_its_job_again(agents: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: its configuration had the cluster of the job by then, so it founded a mesh and told no mate."""
    for name, value in {**agents, "RANK": "0", "LOCAL_RANK": "0", "TORCHELASTIC_RUN_ID": "none"}.items():
        monkeypatch.setenv(name, value)
    with socket.create_server(("127.0.0.1", 0)) as busy:
        given = ictp2p.Config.local(token=TOKEN, listen=f"127.0.0.1:{busy.getsockname()[1]}")
        peer = ictp2p.Peer(given)
        with pytest.raises(AddressInUse):
            peer.start()
    assert peer.config == given
    with peer:
        job = torchrun.Job.of({**agents, "TORCHELASTIC_RUN_ID": "none"})
        assert job is not None
        mate = torchrun.Rendezvous(job, 5.0).before(given, lambda _: None)
        assert (mate.cluster, len(mate.join)) == (peer.config.cluster, 1)


@pytest.mark.real
@pytest.mark.timeout(90)
def test_two_workers_of_torchrun_form_one_cluster() -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", *RENDEZVOUS]
    ran = subprocess.run([*command, str(WORKER)], capture_output=True, text=True, timeout=80, check=False)
    assert ran.returncode == 0, ran.stderr
    lines = sorted(line for line in ran.stdout.splitlines() if line.startswith("cluster"))
    assert len(lines) == 2
    assert lines[0] == lines[1]
    assert lines[0].startswith("cluster torchrun-")
    assert lines[0].endswith("workers 2 sum [3.0, 3.0, 3.0]")
