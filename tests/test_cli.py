import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import ictp2p
from ictp2p import cli
from ictp2p.demo import controller
from ictp2p.demo.controller import Options
from ictp2p.errors import Unreachable

ROOT = Path(ictp2p.__file__).parents[1]
TOKEN = "0123456789abcdef"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment.pop("ICTP2P_TOKEN", None)
    command = [sys.executable, "-m", "ictp2p", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=50)


@pytest.mark.parametrize(
    "arguments",
    [["token"], ["config"], ["--version"], ["demo", "--help"], ["status", "127.0.0.1:1", "--token", TOKEN]],
    ids=lambda arguments: arguments[0],
)
def test_light_commands_do_not_load_torch(arguments: list[str]) -> None:
    program = (
        "import sys, contextlib; sys.path.insert(0, sys.argv[1]); from ictp2p.cli import main\n"
        "with contextlib.suppress(SystemExit): main(sys.argv[2:])\n"
        "assert 'ictp2p.errors' in sys.modules and 'torch' not in sys.modules, 'torch was loaded'"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program, str(ROOT), *arguments], capture_output=True, text=True, timeout=50
    )
    assert ran.returncode == 0, ran.stderr


def test_a_token_has_128_bits_and_is_never_the_same() -> None:
    first, second = run("token").stdout, run("token").stdout
    assert re.fullmatch(r"[0-9a-f]{32}\n", first)
    assert first != second


def test_config_prints_the_parameter_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["config"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["name", "unit", "default", "meaning", "how", "to", "set"]
    assert any(line.startswith("  cluster ") for line in lines[1:])
    assert "ictp2p.config.load(" in lines[-1], "who reads how to set a parameter learns what reads it"


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> list[tuple[object, ...]]:
    calls: list[tuple[object, ...]] = []

    async def fetch_status(address: str, token: str, timeout: float) -> dict[str, Any]:
        calls.append((address, token, timeout))
        if address.endswith(":1"):
            raise Unreachable(f"nobody answered at {address} within {timeout} s")
        return {"state": "TRAINING", "leaders": {"oslo": "a1"}}

    module = ModuleType("ictp2p.status")
    module.fetch_status = fetch_status  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "ictp2p.status", module)
    monkeypatch.delenv("ICTP2P_TOKEN", raising=False)
    return calls


def test_status_shows_tables(fetched: list[tuple[object, ...]], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["status", "127.0.0.1:7001", "--token", TOKEN, "--timeout", "3"]) == 0
    assert fetched == [("127.0.0.1:7001", TOKEN, 3.0)]
    assert capsys.readouterr().out == "  state  TRAINING\n\nleaders\n  oslo  a1\n"


def test_status_takes_the_token_from_the_environment(
    fetched: list[tuple[object, ...]], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ICTP2P_TOKEN", TOKEN)
    assert cli.main(["status", "[::1]:7001", "--json"]) == 0
    assert fetched == [("[::1]:7001", TOKEN, 10.0)]
    assert json.loads(capsys.readouterr().out) == {"state": "TRAINING", "leaders": {"oslo": "a1"}}


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["status", "127.0.0.1:7001"], 2, "ConfigError: no join token: give the mesh's with --token"),
        (["status", "nowhere", "--token", TOKEN], 2, "ConfigError: address 'nowhere' is not valid"),
        (["status", "127.0.0.1:0", "--token", TOKEN], 2, "address '127.0.0.1:0' is not valid: nobody can dial port 0"),
        (["status", "h:99999", "--token", TOKEN], 2, "'99999' is not a number from 0 to 65535"),
        (["status", "127.0.0.1:1", "--token", TOKEN], 1, "Unreachable: nobody answered at 127.0.0.1:1"),
    ],
)
def test_what_the_user_can_mend_is_one_line(
    fetched: list[tuple[object, ...]],
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    status: int,
    words: str,
) -> None:
    assert cli.main(arguments) == status
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1


def test_a_token_that_is_none_is_named_before_anybody_is_asked(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["status", "h:1", "--token", "\udcff" * 32]) == 2
    error = capsys.readouterr().err
    assert "ConfigError: the join token is not valid: it must be text" in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "COMMAND"),
        (["dance"], "'dance'"),
        (["demo", "--rounds", "0"], "0 is less than 1"),
        (["demo", "--workers", "1"], "1 is not from 2 to 16"),
        (["demo", "--workers", "100000"], "100000 is not from 2 to 16"),
        (["demo", "--seed", "-1"], "-1 is not from 0 to 2147483647"),
        (["demo", "--seed", "99999999999999999999"], "is not from 0 to 2147483647"),
        (["demo", "--seconds", "-1"], "-1 is not above 0"),
        (["demo", "--seconds", "nan"], "nan is not above 0 and finite"),
        (["demo", "--seconds", "inf"], "inf is not above 0 and finite"),
        (["demo", "--bulk-rate", "1e300"], "1e300 is not from 1e-6 to 1e9"),
        (["demo", "--bulk-rate", "1e-300"], "1e-300 is not from 1e-6 to 1e9"),
        (["demo", "--port", "65536"], "65536 is not a port"),
        (["demo", "--fault", "hug"], "'hug'"),
        (["config", "--markdown", "--preset", "wan"], "not allowed with"),
    ],
)
def test_bad_arguments_are_named(capsys: pytest.CaptureFixture[str], arguments: list[str], words: str) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main(arguments)
    assert stopped.value.code == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("command", ["demo", "status", "token", "config", "sim list", "sim run", "sim replay"])
def test_each_command_says_what_it_is_for_in_its_own_help(capsys: pytest.CaptureFixture[str], command: str) -> None:
    """Regression: it was said in the list of commands alone, which whoever asks one for help has left behind."""
    with pytest.raises(SystemExit) as stopped:
        cli.main([*command.split(), "--help"])
    assert stopped.value.code == 0
    told = capsys.readouterr().out
    assert re.search(r"\n\n[A-Z][a-z]+ [^\n]+\n", told.partition("options:")[0]), told
    assert "None" not in told, "an option without a default has none to tell"


def test_the_demo_gets_its_options(monkeypatch: pytest.MonkeyPatch) -> None:
    played: list[Options] = []

    def play(options: Options, display: object) -> int:
        played.append(options)
        return 7

    monkeypatch.setattr(controller, "run", play)
    assert cli.main(["demo"]) == 7
    assert cli.main(["demo", "--no-plot", "--report", "r.json", "--fault", "stop", "--sync-every", "5"]) == 7
    assert played == [
        Options(plot=Path("runs/demo.png")),
        Options(report=Path("r.json"), fault="stop", sync_every=5),
    ]


def test_a_report_that_cannot_be_written_is_refused_before_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert cli.main(["demo", "--no-plot", "--report", str(tmp_path / "file" / "report.json")]) == 2
    assert "report.json cannot be written" in capsys.readouterr().err


def test_ctrl_c_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(controller, "run", interrupted)
    assert cli.main(["demo"]) == 130


def test_the_page_of_parameters_is_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["config", "--markdown"]) == 0
    page = Path(__file__).parent.parent / "docs" / "parameters.md"
    assert page.read_text(encoding="utf-8") == capsys.readouterr().out


@pytest.mark.parametrize("command", [["config"], ["config", "--markdown"], ["token"]], ids=" ".join)
def test_a_command_whose_output_nobody_reads_ends_without_a_word(command: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        ran = subprocess.run(
            [sys.executable, "-m", "ictp2p", *command], stdout=writing, stderr=subprocess.PIPE, cwd=ROOT, timeout=50
        )
    finally:
        os.close(writing)
    assert (ran.returncode, ran.stderr) == (cli.UNHEARD, b"")


@pytest.mark.parametrize("command", ["token", "--help"])
def test_a_command_whose_output_finds_no_room_says_so_in_a_line(command: str) -> None:
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}  # argparse hides it then
    with Path("/dev/full").open("w") as full:
        asked = [sys.executable, "-m", "ictp2p", command]
        ran = subprocess.run(asked, stdout=full, stderr=subprocess.PIPE, cwd=ROOT, timeout=50, env=env)
    assert (ran.returncode, ran.stderr) == (cli.FAILED, b"ictp2p: OSError: [Errno 28] No space left on device\n")


@pytest.mark.parametrize("command", [["token"], ["config"], ["sim", "list"]], ids=" ".join)
def test_a_command_without_an_output_says_so_in_a_line(command: list[str]) -> None:
    """Regression: `ictp2p token >&-` ended with a traceback."""
    program = [sys.executable, "-m", "ictp2p", *command]
    shell = ["sh", "-c", 'exec "$@" >&-', "sh", *program]
    ran = subprocess.run(shell, stderr=subprocess.PIPE, cwd=ROOT, timeout=50)
    assert (ran.returncode, ran.stderr) == (cli.FAILED, b"ictp2p: OSError: [Errno 9] standard output is closed\n")


@pytest.mark.parametrize("name", ["sim.py", "sim/__init__.py"])
def test_a_file_that_hides_the_simulator_is_named_and_not_run(tmp_path: Path, name: str) -> None:
    """Regression: a program of one's own called sim.py was run, and what it lacked told in a traceback."""
    hiding = tmp_path / name
    hiding.parent.mkdir(exist_ok=True)
    hiding.write_text("print('run')")
    asked = [sys.executable, "-m", "ictp2p", "sim", "list"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    ran = subprocess.run(asked, capture_output=True, text=True, cwd=tmp_path, timeout=50, env=env)
    assert (ran.returncode, ran.stdout) == (cli.MISUSED, "")
    assert ran.stderr.startswith(f"ictp2p: ConfigError: {hiding} hides the simulator, ")
    assert ran.stderr.count("\n") == 1


@pytest.mark.parametrize("flag", ["--seconds", "--rounds", "--port", "--workers"])
def test_what_is_no_number_is_named(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["demo", flag, "many"])
    assert f"argument {flag}: 'many' is not a number" in capsys.readouterr().err
