"""What cannot be in a scenario file is named, with its place."""

import copy
import math
import re
from typing import Any

import pytest

from ictp2p.errors import ConfigError
from sim.document import read_document
from tests.sim.documented import DOCUMENT


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (("run", "seconds"), -1, "run.seconds = -1 must be above 0"),
        (("run", "seconds"), "long", "run.seconds = 'long' must be a number"),
        (("run", "profile"), "moon", "run.profile = 'moon' must be one of local, lan, wan"),
        (("run", "elements"), 1.5, "run.elements = 1.5 must be a whole number"),
        (("run", "elide"), 1, "run.elide = 1 must be true or false"),
        (("run", "second"), 1, "run.second is not known: use compute, seconds"),
        (("colour",), "red", "colour is not known"),
        (("about",), " ", "about = ' ' must say something"),
        (("run",), 3, "run must be a table, not 3"),
        (("links", "loss"), 1.0, "links.loss = 1.0 must be below 1"),
        (("links", "speed"), 1.0, "links.speed is not known"),
        (("cluster",), [], "cluster is missing"),
        (("cluster",), {"name": "a"}, "cluster = {'name': 'a'} must be a list"),
        (("cluster", 0, "at"), 3.0, "cluster[0] founds the mesh"),
        (("cluster", 1, "workers"), 0, "cluster[1].workers = 0 must be at least 1"),
        (("cluster", 1, "name"), "boston", "cluster[1].name = 'boston' is there already"),
        (("cluster", 1, "name"), "Sea ttle", "cluster[1].name = 'Sea ttle' cannot be"),
        (("cluster", 1, "up"), float("nan"), "cluster[1].up = nan must be a number"),
        (("cluster", 3, "at"), 3.0, "cluster[3].at = 3.0 and waits cannot both be"),
        (("link", 0, "a"), "atlantis", "link[0].a = 'atlantis' names 'atlantis', which is no cluster"),
        (("link", 0, "delay"), -1, "link[0].delay = -1 must be at least 0"),
        (("trunk", 0, "bandwidth"), 0, "trunk[0].bandwidth = 0 must be above 0"),
        (("trunk", 0, "pairs"), [], "trunk[0].pairs = [] must name who shares the trunk"),
        (("trunk", 0, "pairs"), [["boston"]], "has ['boston'], which is no pair"),
        (("fault", 0, "fault"), "Meteor", "fault[0]: fault 'Meteor' is not known"),
        (("fault", 0, "side"), ["atlantis"], "fault Partition at 20 s: side = 'atlantis' is not there"),
        (("fault", 0, "side"), ["boston/2"], "fault Partition at 20 s: side = 'boston/2' is not there"),
        (("fault", 0, "at"), -1, "fault[0]: fault Partition: at = -1 must be at least 0"),
        (("fault", 0, "side"), [], "fault[0]: Partition.side = [] must be a list of names"),
        (("run", "seconds"), math.inf, "run.seconds = inf must be finite"),
        (("run", "compute"), 10**400, "must be finite"),
        (("run", "elements"), 10**400, "must be at most"),
        (("cluster", 1, "workers"), 10**9, "cluster[1].workers = 1000000000 must be at most 1000"),
        (("expect", "within"), math.inf, "expect.within = inf must be finite"),
        (
            ("fault", 1),
            {"at": 40, "fault": "Loss", "a": "boston/0", "b": "*", "probability": 0.1},
            "fault Loss at 40 s: a = 'boston/0' is not there",
        ),
        (("fault", 2, "cluster"), "*", "fault Join at 55 s: cluster = '*' is not there"),
        (("expect", "participants"), ["atlantis"], "expect.participants = ['atlantis'] names 'atlantis'"),
        (("expect", "participants"), "boston", "expect.participants = 'boston' must be a list of texts"),
    ],
)
def test_what_cannot_be_is_named(place: tuple[str | int, ...], value: object, message: str) -> None:
    document: Any = copy.deepcopy(DOCUMENT)
    at = document
    for key in place[:-1]:
        at = at[key]
    at[place[-1]] = value
    with pytest.raises(ConfigError, match=re.escape(message)):
        read_document(document)


def test_a_cluster_that_would_never_come_is_refused() -> None:
    document = {"cluster": [{"name": "a"}, {"name": "b", "waits": True}]}
    with pytest.raises(ConfigError, match="cluster 'b' waits for a Join fault, and there is none that names it"):
        read_document(document)


def test_a_required_value_that_is_missing_is_named() -> None:
    with pytest.raises(ConfigError, match=re.escape("cluster[0].name is missing")):
        read_document({"cluster": [{}]})
