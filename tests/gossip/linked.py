"""The links of one cluster, up and measured, for tests of what they do then."""

from __future__ import annotations

from ictp2p.gossip.hellos import Hello
from ictp2p.gossip.link_profile import LinkProfile
from ictp2p.gossip.links import LinkChanged, Links
from ictp2p.machine import Send
from ictp2p.types import ClusterId, Transfer

NO_PROBES = LinkProfile(probe_credit=0)
MIB = 2**20
A, B, C = (ClusterId(name) for name in ("ams", "bern", "cork"))


def notices(effects, kind=None):
    return [e for e in effects if not isinstance(e, Send) and (kind is None or isinstance(e, kind))]


def linked(profile=NO_PROBES, neighbours=(B,), rtt=0.1):
    """The links of A at time 1.0, each up with the given round trip."""
    links = Links(A, profile)
    for neighbour in neighbours:
        links.connected(neighbour, 1.0 - rtt)
    for neighbour in neighbours:
        effects = links.receive(neighbour, Hello(1, profile.hello_interval, 50.0, 1.0 - rtt, 50.0), 1.0)
        assert LinkChanged(neighbour, links.measurement(neighbour, 1.0)) in effects
    return links


def move(links, rate, now, *, limited=False, probe=False, to=B, direction="out", seconds=1.0):
    return links.transferred(to, Transfer(direction, int(rate * seconds), seconds, limited, now, probe), now)


def wait(links, until):
    """Have time pass until then, and every timer handled when it is due; all that came of it."""
    effects = []
    while (due := links.next_timeout()) is not None and due <= until:
        effects += links.handle_timeout(due)
    return effects
