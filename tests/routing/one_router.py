"""One router, and the test as its neighbours."""

from __future__ import annotations

import random

import msgspec

from ictp2p.machine import Effects, Message, Send
from ictp2p.routing.algebra import Link, link_cost
from ictp2p.routing.babel import Babel
from ictp2p.routing.messages import Advert, Update
from ictp2p.routing.profile import RoutingProfile

PROFILE = RoutingProfile(trigger_delay=0.05, retries=(0.5, 1.0, 2.0), settle=1.0, classes=3)
LINK = Link(0.02)
COST = link_cost(LINK)


def router(*neighbours: str, me: str = "me", profile: RoutingProfile = PROFILE) -> Babel:
    node = Babel(me, 1 << 32, profile, random.Random(0))
    for neighbour in neighbours:
        node.link_up(neighbour, LINK, 0.0)
    return node


def advert(destination: str, metric: int, seqno: int = 1, classes: tuple[int, int] = (0, 0)) -> Update:
    return Update((Advert(destination, *classes, seqno, metric),))


def sends(effects: Effects, kind: type[Message]) -> dict[str, Message]:
    """What is sent to whom, numbers aside, which `test_announcer` is about."""
    return {
        effect.to: replace_number(effect.message)
        for effect in effects
        if isinstance(effect, Send) and isinstance(effect.message, kind)
    }


def pass_time(node: Babel, until: float) -> Effects:
    """Let everything happen that is due by then, each thing at its time."""
    effects: Effects = []
    while (due := node.next_timeout()) is not None and due <= until:
        effects += node.handle_timeout(due)
    return effects


def replace_number(message: Message) -> Message:
    return msgspec.structs.replace(message, number=0) if isinstance(message, Update) else message
