"""`ictp2p sim` as people type it."""

import io
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ictp2p.cli import main as cli
from ictp2p.errors import ConfigError
from sim.command import main
from sim.scenarios import SCENARIOS

TINY = ("--clusters", "3", "--set", "rounds=1", "--set", "compute=4", "--set", "megabytes=0.2")
ALONE = '[run]\nseconds = 5\nprofile = "local"\ncompute = 1.0\n[[cluster]]\nname = "a"\nworkers = 1\n'


def run(*arguments: str) -> tuple[int, str]:
    stream = io.StringIO()
    return main(arguments, stream), stream.getvalue()


def test_list_shows_all_and_explains_one() -> None:
    status, shown = run("list")
    assert status == 0
    assert all(name in shown for name in SCENARIOS)
    status, shown = run("list", "leader_dies")
    assert "Demonstration 1.1b" in shown
    assert "seconds of an inner phase" in shown


def test_a_run_is_shown_written_down_and_replayed(tmp_path: Path) -> None:
    report, trace = tmp_path / "deep" / "run.json", tmp_path / "trace.txt"
    status, shown = run("run", "follower_dies", "--seed", "3", *TINY, "--report", str(report), "--trace", str(trace))
    assert status == 0, shown
    assert "s  Crash host=" in shown
    assert "no work is lost or counted twice" in shown
    told = json.loads(report.read_text())
    assert told["ok"] is True
    assert (told["seed"], told["settings"]["clusters"]) == (3, 3)
    assert [row["fault"] for row in told["plan"]] == ["Crash"]
    assert {row["outcome"] for row in told["rounds"]} <= {"committed", "open"}
    assert told["trace"] in shown
    assert trace.read_text().endswith(f"trace {told['trace']}\n")

    status, shown = run("replay", str(report), "--quiet", "--exact")
    assert status == 0
    assert "The same course" in shown

    report.write_text(json.dumps({**told, "trace": "00"}))
    assert run("replay", str(report), "--quiet")[0] == 0
    status, shown = run("replay", str(report), "--quiet", "--exact")
    assert status == 1
    assert "ANOTHER course" in shown


def test_a_failed_run_says_how_to_see_it_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("alone.toml").write_text(f'{ALONE}[[fault]]\nat = 3.0\nfault = "Crash"\nhost = "a/0"\n[expect]\nwithin = 3\n')
    status, shown = run("run", "alone.toml", "--seed", "9", "--quiet")
    assert status == 1
    assert "FAILED with seed 9" in shown
    assert "did not come true within 3 s" in shown
    assert "faults: 3.000 Crash host=a/0" in shown
    left = Path("runs/sim-alone-9.json")
    assert f"again:  ictp2p sim replay {left}" in shown
    Path("alone.toml").unlink()  # the report has it all
    status, shown = run("replay", str(left), "--quiet")
    assert status == 1
    assert "The same course" in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run", "nothing"), "scenario 'nothing' is not known: use one of follower_dies"),
        (("list", "nothing"), "scenario 'nothing' is not known"),
        (("run", "leader_die"), "scenario 'leader_die' is not known: did you mean leader_dies?"),
        (("run", "heterogeneous_wan", "--clusters", "7"), "heterogeneous_wan: clusters=7 must be at most 6"),
        (("run", "partition_and_heal", "--set", "minority=4"), "minority=4 must be less than half of clusters=8"),
        (("run", "leader_dies", "--plot", "run.doc"), "--plot run.doc: 'doc' is not supported"),
        (("run", "leader_dies", "--set", "colour=red"), "leader_dies has no setting 'colour': it has clusters"),
        (("run", "leader_dies", "--set", "compute"), "--set compute: give it as NAME=VALUE"),
        (("run", "leader_dies", "--set", "=3"), "--set =3: give it as NAME=VALUE"),
        (("run", "leader_dies", "--set", "compute=soon"), "leader_dies: compute=soon is not a number"),
        (("run", "leader_dies", "--set", "compute=nan"), "leader_dies: compute=nan must be a number"),
        (("run", "leader_dies", "--set", "compute=inf"), "leader_dies: compute=inf must be at most 1e+06"),
        (("run", "leader_dies", "--set", f"clusters={10**400}"), "must be finite"),
        (("run", "large_mesh", "--set", "loss=2"), "link.loss = 2.0 must be below 1"),
        (("run", "leader_dies", "--set", "compute=0"), "leader_dies: compute=0.0 must be above 0"),
        (("run", "leader_dies", "--set", "power=maybe"), "leader_dies: power=maybe is not true or false"),
        (("run", "leader_dies", "--set", "profile=moon"), "profile=moon is not one of local, lan, wan"),
        (("run", "leader_dies", "--clusters", "1000000"), "clusters=1000000 times workers=2 must be at most 5000"),
        (("run", "large_mesh", "--set", "workers=1000"), "clusters=32 times workers=1000 must be at most 5000"),
        (
            ("run", "leader_dies", "--set", "megabytes=1e12"),
            "leader_dies: megabytes=1000000000000.0 must be at most 4e+06",
        ),
        (("run", "leader_dies", "--set", "compute=1e300"), "leader_dies: compute=1e+300 must be at most 1e+06"),
        (("run", "leader_dies", "--set", "access=1e-300"), "leader_dies: access=1e-300 must be at least 1"),
        (("run", "large_mesh", "--set", "delay=1000"), "large_mesh: delay=1000.0 must be at most 60"),
        (("run", "leader_dies", "--set", "when=2"), "leader_dies: when=2.0 must be at most 1"),
        (("run", "nat_relay", "--set", "hidden=4"), "hidden=4 must be less than clusters=4"),
        (("run", "leader_dies", "--clusters", "1"), "leader_dies: clusters=1 must be at least 2"),
        (("replay", "nowhere.json"), "report nowhere.json cannot be read: No such file or directory"),
        (("replay", __file__), "is no report of a simulated run"),
        (("run", "leader_dies", "--report", "/"), "/ cannot be written"),
        (("run", "leader_dies", "--trace", "/dev/null/trace"), "/dev/null/trace cannot be written"),
    ],
)
def test_what_cannot_be_is_named_before_anything_runs(arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        run(*arguments)
    assert message in str(raised.value)


@pytest.mark.parametrize("output", ["report", "trace", "plot"])
def test_a_file_that_there_is_no_room_for_is_named(tmp_path: Path, output: str) -> None:
    """Regression: the message said that there was no room, and not for what."""
    if output == "plot":
        pytest.importorskip("matplotlib")
    (tmp_path / "alone.toml").write_text(ALONE)
    with pytest.raises(OSError, match=r"^\[Errno 28\] No space left on device: '/dev/full'$"):
        run("run", str(tmp_path / "alone.toml"), "--quiet", f"--{output}", "/dev/full")


def test_a_file_that_could_not_be_written_is_a_line_and_a_status(tmp_path: Path) -> None:
    (tmp_path / "alone.toml").write_text(ALONE)
    program = [sys.executable, "-m", "sim", "run", str(tmp_path / "alone.toml"), "--quiet", "--report", "/dev/full"]
    ran = subprocess.run(program, capture_output=True, text=True, timeout=50)
    assert ran.returncode == 1
    assert ran.stderr == "ictp2p: OSError: [Errno 28] No space left on device: '/dev/full'\n"


@pytest.mark.parametrize("command", ["run", "replay"])
def test_brackets_without_end_are_no_document(tmp_path: Path, command: str) -> None:
    """Regression: the parser's recursion ended as a traceback of its own."""
    (tmp_path / "deep.json").write_text("[" * 100_000)
    with pytest.raises(ConfigError, match=r"deep\.json"):
        run(command, str(tmp_path / "deep.json"))


@pytest.mark.parametrize("seed", ["-1", "1.5", "one", ""])
def test_a_seed_is_a_whole_number_from_zero_on(seed: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        run("run", "leader_dies", f"--seed={seed}")
    assert raised.value.code == 2
    assert f"argument --seed: {seed} is not a whole number from 0 on" in capsys.readouterr().err


@pytest.mark.parametrize(
    "document",
    [[], {}, {"format": 99, "scenario": "leader_dies"}, {"format": 1, "scenario": "leader_dies", "seed": "x"}],
)
def test_replay_takes_reports_only(tmp_path: Path, document: object) -> None:
    path = tmp_path / "report.json"
    path.write_text(json.dumps(document))
    with pytest.raises(ConfigError, match=r"report\.json"):
        run("replay", str(path))


def test_what_a_report_says_that_cannot_be_is_named_before_anything_runs(tmp_path: Path) -> None:
    """Regression: a number that no float can hold was an OverflowError."""
    path = tmp_path / "report.json"
    told = {"format": 1, "scenario": "leader_dies", "seed": 1, "settings": {"compute": 10**400}}
    fault = {"at": 1, "fault": "SlowNode", "host": "a/0", "factor": -1}
    for document, message in (
        (told, "compute=1"),
        ({**told, "document": {"cluster": [{"name": "a"}], "fault": [fault]}}, "factor = -1 must be above 0"),
    ):
        path.write_text(json.dumps(document))
        with pytest.raises(ConfigError, match=re.escape(message)):
            run("replay", str(path))


def test_the_command_line_turns_errors_into_a_line_and_a_status(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli(["sim", "run", "nothing"]) == 2
    assert capsys.readouterr().err.startswith("ictp2p: ConfigError: scenario 'nothing' is not known")
    assert cli(["sim", "list"]) == 0
    assert "leader_dies" in capsys.readouterr().out


def test_other_commands_do_not_load_the_simulator() -> None:
    program = "import sys; from ictp2p.cli import main; main(['token']);"
    program += "print([m for m in ('sim', 'torch', 'matplotlib') if m in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=50)
    assert ran.stdout.splitlines()[1] == "[]"


def test_it_is_a_module_too() -> None:
    program = [sys.executable, "-m", "sim", "list", "nat_relay"]
    ran = subprocess.run(program, capture_output=True, text=True, check=True, timeout=50)
    assert "address translators" in ran.stdout
