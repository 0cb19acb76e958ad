"""Telling people what they should know at once: no quorum, a state that is lost, results that differ, who hangs.

Each is an event with its figures, for programs, if it has any, and a warning in words, which also reaches the log.
"""

from __future__ import annotations

from ictp2p.core.commands import MateUnmet
from ictp2p.core.directory import Directory
from ictp2p.machine import Notice
from ictp2p.sync.agreement.chain import Decided, ForeignChain
from ictp2p.sync.agreement.quorum_watch import QuorumLost, QuorumRegained
from ictp2p.sync.rosters.roster import GroupAils, WorkersStandStill
from ictp2p.sync.rosters.wording import ailing, without
from ictp2p.sync.rounds.notices import ClusterAbsent, StateMissing, StateRestored
from ictp2p.sync.rounds.wording import apart
from ictp2p.sync.values import Close
from ictp2p.telemetry import Telemetry

_LATE = "seem to be alive, but too few of them answer in time"
_ABSENT = "Its training hangs, is that much slower, or it still fetches the state; look there, or end it"
_DIALED = "Unless it has died since, look at advertise and listen of both: one must be able to dial the other there"
_NO_STATE = (
    "have a worker `load` a checkpoint of this training; for a new training, which can have none, end all workers and "
    "give each an empty data_dir, for theirs hold the decisions of the old one"
)


def announce(telemetry: Telemetry, directory: Directory, notice: Notice) -> None:
    """Tell of a notice that is an alarm, or the end of one; `directory` says who is who."""
    match notice:
        case QuorumLost(voters=voters, missing=missing):
            telemetry.event("quorum_lost", voters=list(voters), missing=list(missing))
            names = ", ".join(map(directory.in_words, missing))
            what = f"of {len(voters)} voters are missing {names}" if missing else f"all {len(voters)} voters {_LATE}"
            telemetry.event("warning", text=f"no quorum: {what}")
        case QuorumRegained():
            telemetry.event("quorum_regained")
        case MateUnmet(mate=mate, seconds=seconds):
            who, cluster = directory.in_words(mate), directory.me.cluster
            what = f"another worker, {who}, is there, as others say, but in {seconds:.0f} s neither reached the other"
            text = f"{what}: each leads {cluster} by itself, and the mesh hears one of the two. {_DIALED}"
            telemetry.event("warning", text=text)
        case ForeignChain(peer=peer, first=True):
            text = f"{peer} is of another mesh, which was founded apart: the two never become one"
            telemetry.event("warning", text=f"{text}; start the peers of one anew, with empty data folders and join")
        case Decided(value=Close(camps=camps) as close) if camps:
            telemetry.event("digests_differ", round=close.round, attempt=close.attempt, camps=[list(c) for c in camps])
            telemetry.event("warning", text=f"round {close.round} came to nothing: {apart(camps)}", round=close.round)
        case ClusterAbsent(cluster=cluster, leader=leader, rounds=rounds, seconds=seconds):
            telemetry.event("cluster_absent", cluster=cluster, rounds=rounds, seconds=seconds)
            text = (
                f"cluster {cluster} was in none of the last {rounds} rounds, though {directory.in_words(leader)} lives"
            )
            telemetry.event("warning", text=f"{text}: each waits for it. {_ABSENT}", cluster=cluster)
        case WorkersStandStill(workers=workers):
            for worker in workers:
                words = without(worker, directory.in_words)
                telemetry.event("warning", text=f"the process group of {directory.me.cluster} goes on {words}")
        case GroupAils(trouble=trouble):
            telemetry.event(
                "warning", text=f"the process group of {directory.me.cluster} {ailing(trouble, directory.in_words)}"
            )
        case StateMissing():
            _missing(telemetry, notice)
        case StateRestored(restore=restore):
            lost, now = restore.state.version - 1, restore.state.version
            telemetry.event("state_restored", lost=lost, source=restore.source, version=now, reason=restore.reason)
            telemetry.event("warning", text=f"{restore.reason}, as version {now}: what came after it is lost")


def _missing(telemetry: Telemetry, notice: StateMissing) -> None:
    lost, source = notice.ref.version, notice.source
    telemetry.event("state_lost", version=lost, source=source, seconds=notice.seconds)
    what = f"nobody who is alive holds version {lost} of the state"
    if source is None:
        text = f"{what}, nor any other: {_NO_STATE}"
    else:
        text = f"{what}; the mesh goes back to version {source} in {notice.seconds:.0f} s unless a holder returns"
    telemetry.event("warning", text=text)
