import contextlib
import os
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ictp2p.config import PROFILES, Config, Timeouts, load, page, parameters
from ictp2p.config.checks import dialed
from ictp2p.config.table import ELSEWHERE
from ictp2p.errors import ConfigError
from ictp2p.torch_backend.options import Options
from ictp2p.types import Address

BASE = {"cluster": "zurich", "token": "0123456789abcdef"}


@pytest.mark.parametrize("preset", PROFILES)
def test_each_preset_needs_only_a_cluster_and_a_token(preset: str):
    config = load(preset, overrides=BASE)
    assert config == getattr(Config, preset)(**BASE)
    assert config.cluster_id == "zurich"
    assert config.seeds == ()


def test_what_people_and_toml_write_is_put_into_its_type(tmp_path: Path):
    config = Config.lan(**BASE, join=["[::1]:7000", "zurich.example:7001"], bulk_rate=5, data_dir=tmp_path)
    assert config.join == ("[::1]:7000", "zurich.example:7001")
    assert config.seeds == (Address("::1", 7000), Address("zurich.example", 7001))
    assert (config.bulk_rate, type(config.bulk_rate)) == (5.0, float)
    assert config.data_dir == str(tmp_path)
    assert Config.local(**BASE, listen="127.0.0.1:7").listen_address == Address("127.0.0.1", 7)


def test_later_sources_win(tmp_path: Path):
    toml = tmp_path / "ictp2p.toml"
    toml.write_text(
        'cluster = "oslo"\nlisten = "127.0.0.1:1"\nrank = 1\nencrypt = false\n[local_timeouts]\nstall = 1\nform = 2\n'
    )
    env = {
        "ICTP2P_TOKEN": "from the environment",
        "ICTP2P_LISTEN": "127.0.0.1:2",
        "ICTP2P_RANK": "2",
        "ICTP2P_LOCAL_TIMEOUTS_STALL": "3.5",
        "ICTP2P_JOIN": "127.0.0.1:8, 127.0.0.1:9",
        "HOME": "/nowhere",
    }
    config = load("wan", toml=toml, env=env, overrides={"rank": 3, "listen": None, "global_timeouts": {"form": 9}})
    assert (config.cluster, config.token) == ("oslo", "from the environment")
    assert (config.listen, config.rank, config.encrypt) == ("127.0.0.1:2", 3, False)
    assert config.join == ("127.0.0.1:8", "127.0.0.1:9")
    defaults = Config.wan(**BASE)
    assert config.local_timeouts == Timeouts(
        connect=defaults.local_timeouts.connect, stall=3.5, form=2.0, complete=defaults.local_timeouts.complete
    )
    assert config.global_timeouts.form == 9.0
    assert config.global_timeouts.stall == defaults.global_timeouts.stall


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"nope": 1}, "'nope' is not known: see"),
        ({"datadir": "x"}, "parameter 'datadir' is not known: data_dir may be meant; see `ictp2p config`"),
        ({"cluster": "Not Valid"}, "cluster: cluster name 'Not Valid'"),
        ({"listen": "7000"}, "listen: address '7000'"),
        ({"advertise": "somewhere"}, "advertise: address 'somewhere'"),
        ({"join": ["ok:1", "bad"]}, "join: address 'bad'"),
        ({"join": ["a..b:1"]}, "join: address 'a..b:1' is not valid: no host can have that name"),
        ({"listen": "a\0b:1"}, r"listen: address 'a\\x00b:1' is not valid: no host can have that name"),
        ({"advertise": f"{'x' * 64}.org:1"}, "advertise: address 'x*.org:1' is not valid: no host can have that name"),
        ({"advertise": "\ud800:1"}, r"advertise: address '\\ud800:1' is not valid: no host can have that name"),
        ({"join": [f"{'x.' * 127}:1"]}, "join: address 'x.*... is not valid: no host can have that name"),
        ({"join": ["ok:1", "ok:0"]}, "join: address 'ok:0' is not valid: nobody can dial port 0"),
        ({"advertise": "0.0.0.0:70"}, "advertise: address '0.0.0.0:70' is not valid: others cannot dial 0.0.0.0"),
        ({"advertise": "[::]:70"}, r"advertise: address '\[::\]:70' is not valid: others cannot dial ::"),
        ({"advertise": "0:70"}, "advertise: address '0:70' is not valid: others cannot dial 0"),
        ({"join": ["ok:1", "[::ffff:0.0.0.0]:1"]}, "join: address .* others cannot dial ::ffff:0.0.0.0"),
        ({"join": ["0.0.0.0:1"]}, "join: address '0.0.0.0:1' is not valid: others cannot dial 0.0.0.0"),
        ({"advertise": "192.0.2.7:0"}, "advertise: address '192.0.2.7:0' is not valid: nobody can dial port 0"),
        ({"join": "127.0.0.1:7000"}, r"join: .* must be of type list of str, as in \['192"),
        ({"join": [7]}, "join: .* must be of type"),
        ({"rank": 1.5}, "rank: 1.5 is not valid"),
        ({"rank": True}, "rank: True is not valid"),
        ({"rank": 10**30}, "rank: 1000000000000000000000000000000 is not valid: it must be between -2147483648 and"),
        ({"rank": -(2**31) - 1}, "rank: -2147483649 is not valid"),
        ({"rank": 10**5000}, "rank: a whole number of 16610 bits is not valid"),
        ({"bulk_rate": 10**400}, "bulk_rate: a whole number of 1329 bits is not valid: it is too large"),
        ({"local_timeouts": {"stall": 10**400}}, "local_timeouts: stall: a whole number of 1329 bits is not valid"),
        ({"full_mesh": 1}, "full_mesh: 1 is not valid: it must be at least 2"),
        ({"full_mesh": 10**30}, "full_mesh: 1000000000000000000000000000000 is not valid"),
        ({"encrypt": 1}, "encrypt: 1 is not valid"),
        ({"bulk_rate": 0}, "bulk_rate: 0.0 is not valid"),
        ({"room": 2**25 - 1}, "room: 33554431 is not valid: it must be between 33554432"),
        ({"room": 2**36 + 1}, "room: 68719476737 is not valid"),
        ({"room": 1e8}, "room: 100000000.0 is not valid"),
        ({"bulk_rate": float("nan")}, "bulk_rate: nan"),
        ({"bulk_rate": 1e300}, r"bulk_rate: 1e\+300 is not valid: it must be between 1 and 1e\+15 bytes/s"),
        ({"bulk_rate": 1e-300}, "bulk_rate: 1e-300 is not valid: it must be between 1 and"),
        ({"restore_after": 1e300}, r"restore_after: 1e\+300 .* at most 1e\+09, which is 31 years, or inf"),
        ({"restore_after": float("nan")}, "restore_after: nan is not valid"),
        ({"bulk_rate": "fast"}, "bulk_rate: 'fast'"),
        ({"data_dir": 7}, "data_dir: 7"),
        ({"data_dir": ""}, "data_dir: '' is not valid: it must name a folder, or be left out"),
        ({"data_dir": "~/peer"}, "data_dir: '~/peer' is not valid: only a shell knows what ~ is"),
        ({"data_dir": "a\0b"}, "data_dir: .* must name a folder"),
        ({"data_dir": "a\ud800"}, "data_dir: 'a.ud800' is not valid: it must name a folder"),
        ({"token": "\ud800" * 32}, "token is not valid: it must be text, in UTF-8"),
        ({"local_timeouts": {"complete": 1e10}}, r"local_timeouts: complete: 10000000000.0 .* at most 1e\+09"),
        ({"global_timeouts": {"connect": float("inf")}}, "global_timeouts: connect: inf is not valid"),
        ({"local_profile": "moon"}, "local_profile: 'moon' is not valid: use one of local, lan, wan"),
        ({"local_timeouts": {"stall": 0}}, r"local_timeouts: stall: 0\.0 is not valid"),
        ({"local_timeouts": {"stall": float("inf")}}, "local_timeouts: stall: inf"),
        (
            {"global_timeouts": {"stahl": 1}},
            r"'global_timeouts\.stahl' is not known: global_timeouts\.stall may be meant",
        ),
        ({"global_timeouts": 7}, r"global_timeouts: 7 is not valid: .* seconds by name, as in \{'stall': 30\.0\}"),
    ],
)
def test_a_bad_value_is_named(values: dict[str, Any], words: str):
    with pytest.raises(ConfigError, match=words):
        load(overrides={**BASE, **values})
    with pytest.raises(ConfigError, match=words):
        Config.lan(**{**BASE, **values})


@given(st.one_of(st.text(), st.sampled_from(["a\0b", "\ud800"])), st.integers(0, 65535))
def test_any_host_can_be_dialed_or_is_refused_in_words(host: str, port: int):
    with contextlib.suppress(ConfigError):
        assert dialed(f"{host}:{port}").port == port > 0


@pytest.mark.parametrize("token", ["", "short", "a token of a file\n", b"a token in bytes", 12345678])
def test_a_bad_token_is_not_repeated(token: object):
    with pytest.raises(ConfigError, match="token is not valid") as caught:
        Config.lan(cluster="zurich", token=token)
    assert not token or str(token) not in str(caught.value)


def test_the_token_is_in_no_repr():
    assert BASE["token"] not in repr(Config.lan(**BASE))


@pytest.mark.parametrize("name", ["cluster", "token"])
def test_what_has_no_default_must_be_given(name: str):
    given = {key: value for key, value in BASE.items() if key != name}
    with pytest.raises(ConfigError, match=f"'{name}' must be given"):
        load(overrides=given)


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ({"ICTP2P_JOIN": ""}, "ICTP2P_JOIN='' names nobody"),
        ({"ICTP2P_JOIN": " , "}, "ICTP2P_JOIN=' , ' names nobody"),
        ({"ICTP2P_STALL": "1"}, "environment variable 'ICTP2P_STALL' is not known: see"),
        ({"ICTP2P_LISEN": "1"}, "'ICTP2P_LISEN' is not known: ICTP2P_LISTEN may be meant"),
        ({"ICTP2P_RANK": "first"}, "ICTP2P_RANK='first' is not valid: it must be of type int$"),
        ({"ICTP2P_BULK_RATE": "fast"}, "ICTP2P_BULK_RATE='fast' is not valid: it must be of type float$"),
        ({"ICTP2P_ENCRYPT": "maybe"}, "ICTP2P_ENCRYPT='maybe' is not valid: use one of 1, true, yes, 0, false, no$"),
        ({"ICTP2P_GLOBAL_TIMEOUTS_FORM": "-1"}, r"^ICTP2P_GLOBAL_TIMEOUTS_FORM: -1\.0 is not valid"),
        ({"ICTP2P_LISTEN": "x"}, "^ICTP2P_LISTEN: address 'x' is not valid"),
        ({"ICTP2P_ISOLATION": "Process"}, "^ICTP2P_ISOLATION: 'Process' is not valid: use one of thread, process"),
        ({"ICTP2P_JOIN": "a,b:1"}, "^ICTP2P_JOIN: address 'a' is not valid"),
        ({"ICTP2P_RANK": str(2**31)}, "^ICTP2P_RANK: 2147483648 is not valid"),
        ({"ICTP2P_TOKEN": "\ud800"}, "^ICTP2P_TOKEN is not valid: it must be text"),
    ],
)
def test_the_environment_is_checked_too(env: dict[str, str], words: str):
    """Regression: a value that could be read but not be right was named as if an argument had given it."""
    with pytest.raises(ConfigError, match=words):
        load(env=env, overrides=BASE)


def test_an_empty_token_in_the_environment_is_none_where_an_argument_gives_one(tmp_path: Path):
    """Regression: it was refused for what nobody would have used."""
    assert load(env={"ICTP2P_TOKEN": ""}, overrides=BASE).token == BASE["token"]
    (tmp_path / "peer.toml").write_text(f"token = '{BASE['token']}'")
    for toml in (None, tmp_path / "peer.toml"):
        with pytest.raises(ConfigError, match=r"^ICTP2P_TOKEN is not valid: it has 0 characters, at least 16"):
            load(toml=toml, env={"ICTP2P_TOKEN": ""}, overrides={"cluster": "zurich"})


@pytest.mark.parametrize(("text", "value"), [("1", True), ("TRUE", True), ("no", False), ("0", False)])
def test_truth_in_the_environment(text: str, value: bool):
    assert load(env={"ICTP2P_ENCRYPT": text}, overrides=BASE).encrypt is value


def test_a_job_may_have_process_groups_too():
    """Regression: what one half of the product reads from the environment was an error for the other."""
    env = {"ICTP2P_HOST": "127.0.0.1", "ICTP2P_SEALED": "no", "ICTP2P_TOKEN": BASE["token"]}
    assert set(env) - {"ICTP2P_TOKEN"} == ELSEWHERE
    assert load(env=env, overrides={"cluster": "zurich"}).token == BASE["token"]
    assert Options.of(None, env) == Options("127.0.0.1", False, 30.0, BASE["token"])


def test_a_file_that_is_missing_or_no_toml_is_named(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"cannot read configuration .*absent\.toml"):
        load(toml=tmp_path / "absent.toml")
    (tmp_path / "bad.toml").write_text("= nothing")
    with pytest.raises(ConfigError, match=r"bad\.toml' is not TOML"):
        load(toml=tmp_path / "bad.toml")
    with pytest.raises(ConfigError, match="preset 'moon'"):
        load("moon")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("listen = 'x'", "listen: address 'x' is not valid"),
        ("rank = 1.5", r"rank: 1\.5 is not valid"),
        ("lisen = 'x:1'", "parameter 'lisen' is not known"),
        ("token = ''", "token is not valid"),
        ("local_timeouts = 7", "local_timeouts: 7 is not valid"),
        ("[local_timeouts]\nstall = 0", r"local_timeouts: stall: 0\.0 is not valid"),
        ("[local_timeouts]\nstahl = 1", r"parameter 'local_timeouts\.stahl' is not known"),
    ],
)
def test_what_cannot_be_is_named_with_the_file_that_says_so(tmp_path: Path, text: str, words: str):
    """Regression: it was named as if an argument had given it."""
    (tmp_path / "peer.toml").write_text(text)
    with pytest.raises(ConfigError, match=rf"^configuration '.*peer\.toml': {words}"):
        load(toml=tmp_path / "peer.toml", overrides=BASE)


@pytest.mark.parametrize("text", ["rank = " + "9" * 5000, "join = " + "[" * 5000 + "]" * 5000, "\xff"])
def test_what_the_parser_chokes_on_is_no_toml(tmp_path: Path, text: str):
    (tmp_path / "odd.toml").write_text(text, encoding="latin-1")
    with pytest.raises(ConfigError, match=r"odd\.toml' is not TOML"):
        load(toml=tmp_path / "odd.toml", overrides=BASE)


def test_a_name_that_no_file_can_have_is_named():
    with pytest.raises(ConfigError, match=r"configuration 'a.x00b'"):
        load(toml="a\0b", overrides=BASE)


def test_only_load_reads_the_environment_and_the_page_says_so(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ICTP2P_RANK", "7")
    assert Config.wan(**BASE).rank == 0
    assert load("wan", env=os.environ, overrides=BASE).rank == 7
    told = page()
    (program,) = re.findall(r"```python\n(.*?)```", told, re.DOTALL)
    assert "read neither a file nor `ICTP2P_*`" in " ".join(told.split())
    monkeypatch.setenv("ICTP2P_CLUSTER", "oslo")
    monkeypatch.setenv("ICTP2P_TOKEN", BASE["token"])
    made: dict[str, Any] = {}
    exec(program.replace('"peer.toml"', "os.devnull"), made)  # as a reader would, with a file that is there
    assert (made["config"].cluster, made["config"].rank) == ("oslo", 1)


def test_the_file_on_the_page_is_read_and_its_timeouts_are_those_of_a_mapping(tmp_path: Path):
    (file,) = re.findall(r"```toml\n(.*?)```", page(), re.DOTALL)
    (tmp_path / "peer.toml").write_text(file)
    read = load("wan", toml=tmp_path / "peer.toml", overrides={"token": BASE["token"]})
    assert 'Config.wan(global_timeouts={"stall": 30.0}' in page()
    values = {**BASE, "cluster": "oslo", "data_dir": "peer", "join": ["train.zurich.example:7450"]}
    assert read == Config.wan(**values, global_timeouts={"stall": 30.0})


def test_every_parameter_has_a_row_and_the_way_to_set_it_works():
    rows = parameters("wan")
    assert len({row.name for row in rows}) == len(rows) == 24
    assert all(row.meaning for row in rows)
    for row in rows:
        if row.default in ("required", "not set"):
            continue
        variable = row.how.rsplit(" ", 1)[1]
        assert load("wan", env={variable: row.default}, overrides=BASE) == Config.wan(**BASE)
