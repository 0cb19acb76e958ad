from __future__ import annotations

import functools
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from tests.mutations import runner
from tests.mutations.catalogue import CATALOGUE
from tests.mutations.mutation import Mutation
from tests.mutations.runner import ROOT, Laboratory, Result, Verdict, misfit

SAMPLE = ("feasibility-not-strict", "dead-merged-as-dead", "promise-not-on-disk", "send-overtakes-persist")
BY_NAME = {mutation.name: mutation for mutation in CATALOGUE}


@functools.cache
def defined(file: str) -> set[str]:
    """What has a name in a file of tests."""
    return set(re.findall(r"^\s*(?:class|def|async def) (\w+)", (ROOT / "tests" / file).read_text(), re.MULTILINE))


@pytest.mark.parametrize("mutation", CATALOGUE, ids=lambda mutation: mutation.name)
def test_every_mutation_applies_to_the_present_source_and_names_tests_that_exist(mutation: Mutation) -> None:
    assert misfit(ROOT, mutation) is None
    assert mutation.killers
    for killer in mutation.killers:
        file, *names = killer.split("::")
        assert {name.partition("[")[0] for name in names} <= defined(file), killer


def test_names_are_unique() -> None:
    assert Counter(mutation.name for mutation in CATALOGUE).most_common(1)[0][1] == 1


@pytest.fixture(scope="module")
def laboratory(tmp_path_factory: pytest.TempPathFactory) -> Laboratory:
    return Laboratory.set_up(tmp_path_factory.mktemp("source"))


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", SAMPLE)
def test_a_broken_rule_is_noticed(laboratory: Laboratory, name: str) -> None:
    result = laboratory.judge(BY_NAME[name])
    assert result.verdict is Verdict.KILLED, result
    assert misfit(laboratory.root, BY_NAME[name]) is None, "the copy is as before"


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_harmless_change_survives_and_what_shows_nothing_is_no_kill(laboratory: Laboratory) -> None:
    real = BY_NAME["feasibility-not-strict"]
    harmless = replace(real, new=f"{real.old} or False")
    assert laboratory.judge(harmless).verdict is Verdict.SURVIVED
    unimportable = replace(real, old="INFINITY, Distance\n", new="INFINITY, Distance, NO_SUCH\n")
    assert laboratory.judge(unimportable).verdict is Verdict.INCONCLUSIVE
    missing = replace(real, killers=("routing/test_sources.py::test_that_is_not_there",))
    assert laboratory.judge(missing).verdict is Verdict.BROKEN_TESTS


def test_text_that_does_not_apply_is_an_error_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "code.py").write_text("x = 1\ny = 1\n")
    probe = Mutation("probe", "a rule", "x = 1", "x = 2", ("test_code.py",), "code.py")
    assert misfit(tmp_path, probe) is None
    for wrong, why in (
        (replace(probe, file="gone.py"), "no gone.py"),
        (replace(probe, old="z = 1"), "stands 0 times"),
        (replace(probe, old="= 1"), "stands 2 times"),
        (replace(probe, new="x = ("), "does not parse"),
        (replace(probe, new="x = 1  # the same"), "changes nothing"),
    ):
        assert why in (misfit(tmp_path, wrong) or "")
        assert Laboratory(tmp_path).judge(wrong).verdict is Verdict.INAPPLICABLE


def test_the_report_names_what_was_not_killed_and_the_exit_status_tells(capsys: pytest.CaptureFixture[str]) -> None:
    mutation = CATALOGUE[0]
    killed = Result(mutation, Verdict.KILLED, "test_x", 1.0)
    assert runner._summary([killed]) == 0
    assert runner._summary([killed, replace(killed, verdict=Verdict.SURVIVED)]) == 1
    assert runner._summary([replace(killed, verdict=Verdict.INAPPLICABLE)]) == 1
    assert mutation.rule in capsys.readouterr().out
    with pytest.raises(SystemExit):
        runner.main(["no-such-mutation"])
