"""One library for all, and only where all can use it."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ictp2p.sync.rosters.devices import GLOO, HOST, Device, choose

UNITS = st.sampled_from(["", "one/0", "one/1", "two/0"])
DEVICES = st.builds(
    Device,
    kind=st.sampled_from(["cpu", "cuda", "npu", "xpu"]),
    unit=UNITS,
    library=st.sampled_from(["", "gloo", "nccl", "hccl", "xccl"]),
    release=st.sampled_from(["", "2.26", "2.27"]),
)


@st.composite
def alike(draw: st.DrawFn) -> list[Device]:
    """The devices of workers with one library, each its own, and at most one thing in which the first is odd."""
    shared = draw(DEVICES.filter(lambda device: device.library not in ("", GLOO)))
    units = draw(st.lists(UNITS.filter(bool), min_size=2, max_size=3, unique=True))
    group = [replace(shared, unit=unit) for unit in units]
    odd = draw(st.sampled_from(["", "unit", "kind", "library", "release"]))
    return [replace(group[0], **{odd: getattr(draw(DEVICES), odd)}), *group[1:]] if odd else group


GROUPS = st.lists(DEVICES, min_size=1, max_size=4) | alike()
REFUSED = st.sets(st.sampled_from(["nccl", "hccl", "xccl"]), max_size=1)


def cuda(unit: str, release: str = "2.27") -> Device:
    return Device("cuda", unit, "H200", "nccl", release)


@given(GROUPS, REFUSED, st.randoms(use_true_random=False))
def test_the_order_of_the_members_does_not_matter(devices, refused, chance) -> None:
    shuffled = chance.sample(devices, len(devices))
    assert choose(shuffled, refused) == choose(devices, refused)
    assert choose(devices, refused).reason


@given(GROUPS, REFUSED)
def test_a_vendors_library_is_chosen_exactly_if_all_can_use_it(devices, refused) -> None:
    library = choose(devices, refused).library
    same = len({(d.kind, d.library, d.release) for d in devices}) == 1
    apart = len({d.unit for d in devices}) == len(devices) and all(d.unit for d in devices)
    usable = devices[0].library not in ("", GLOO, *refused)
    assert (library != GLOO) == (len(devices) > 1 and same and apart and usable)
    if library != GLOO:
        assert {d.library for d in devices} == {library}


def test_by_the_name_that_torch_has_for_the_device() -> None:
    for kind, library in (("cuda", "nccl"), ("npu", "hccl"), ("xpu", "xccl")):
        devices = [Device(kind, f"host/{n}", "", library, "") for n in range(2)]
        assert choose(devices).library == library


def test_the_reason_names_what_is_in_the_way() -> None:
    one, two = cuda("a/0"), cuda("a/1")
    assert choose([HOST, HOST]).reason == "its workers compute on cpu"
    assert choose([one, HOST]).reason == "its workers compute on cpu and cuda"
    assert choose([one, one]).reason == "some of its workers share a device, which nccl does not allow"
    assert choose([one, cuda("b/0", "2.26")]).reason == "its workers have nccl in the releases 2.26, 2.27"
    assert choose([one, Device("cuda", "b/0")]).reason == "not all of its workers have one library: none, nccl"
    assert choose([one, two], ["nccl"]).reason == "nccl did not come up between these workers"
    assert choose([one]).library == GLOO
