# ruff: noqa: T201  (printing is how it speaks)
"""A worker without a peer: speaks the demo's JSON lines, and meets its fellows in a folder instead of a mesh.

Each fake leaves its pid, its readiness and its version in the folder. `oslo/0` closes a round whenever every living
fake has reached the last version, and tells of it; all clusters with a living worker take part. Its only pace is
the patience of `select` on its commands. `fault` makes one worker misbehave, see `test_controller.py`.
"""

import json
import os
import select
import sys
import time
from pathlib import Path

FOLDER, CLUSTER, NUMBER, FAULT = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4]
ME = f"{CLUSTER}-{NUMBER}"
PACE = 0.02


def say(kind, **fields):
    behind = 60.0 if FAULT == "behind" and kind == "reduce_progress" else 0.0
    print(json.dumps({"kind": kind, "time": time.time() - behind, **fields}), flush=True)


def write(name, value):
    (FOLDER / "draft").mkdir(exist_ok=True)
    draft = FOLDER / "draft" / ME
    draft.write_text(str(value))
    draft.replace(FOLDER / name)


def commands(patience):
    while select.select([sys.stdin], [], [], patience)[0]:
        line = sys.stdin.readline()
        if not line:
            os._exit(3)
        yield json.loads(line)
        patience = 0


def living():
    """Names of the fakes in training whose process neither ended nor stopped."""
    names = []
    for file in sorted(FOLDER.glob("*.on")):
        try:
            state = Path(f"/proc/{file.read_text()}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):  # it ended, maybe while we read
            continue
        if state not in "TtZX":
            names.append(file.stem)
    return names


def version_of(name):
    file = FOLDER / f"{name}.version"
    return int(file.read_text()) if file.exists() else 0


def digest(version):
    return "bad" if FAULT == "digest" and version > 3 else f"digest-of-{version}"


def main():
    if FAULT == "garbage":
        print("[Gloo] chatter on standard output\n{\n[]\n42\n" * 50, flush=True)
        print("my last words", file=sys.stderr, flush=True)
    if FAULT in ("hang", "garbage"):
        sys.stdin.read()
    if FAULT == "failed":
        say("failed", error="HandshakeFailed", text="the other side refused the join token")
    if FAULT == "unreadable":
        say("round_committed", round="three", attempt=1)
    say("ready", peer=f"peer-of-{ME}", address=f"127.0.0.1:{7000 + NUMBER}", pid=os.getpid())
    for command in commands(None):
        assert command["do"] == "go", command
        break
    train()


def train():
    version, leader, stop_at, stopped, late = version_of("oslo-0"), None, None, False, FAULT == "late"
    write(f"{ME}.version", version)
    write(f"{ME}.on", os.getpid())
    say("version", version=version, digest=digest(version))
    say("validation", version=version, loss=5.5)
    while True:
        for command in commands(PACE):
            if command["do"] == "exit":
                return
            if command["do"] == "drain":
                if FAULT == "undrainable":
                    continue
                say("drained", version=version)
                return
            stop_at, stopped = command["version"], False
        if not (FOLDER / f"{CLUSTER}-0.on").exists():
            continue  # it leads: who spoke of another one before would have claimed a higher term
        names = living()
        first = next(name for name in names if name.startswith(CLUSTER))
        if first != leader:
            leader = first
            say("leader", cluster=CLUSTER, leader=f"peer-of-{leader}", term=int(leader[-1]) + 1)
        if stopped:
            continue
        if leader == ME:
            for fraction in (0.0, 0.2) if FAULT == "abrupt" else (0.0, 0.2, 0.4, 0.9):
                say("reduce_progress", round=version + 1, attempt=1, fraction=fraction)
        if FAULT == "die" and version == 2:
            print("my last words", file=sys.stderr, flush=True)
            os._exit(7)
        if ME == "oslo-0" and all(version_of(name) >= version for name in names):
            close(version + 1, names)
        if version_of("oslo-0") > version:
            version += 1
            write(f"{ME}.version", version)
            say("version", version=version, digest=digest(version))
            say("step", step=20 * version, loss=4.0)
        if stop_at is not None and version >= stop_at + late:
            stopped, late = True, False
            loss = 5.4 if FAULT == "unlearned" else 2.5
            say("stopped", version=version, digest=digest(version), validation_loss=loss, stats={"frames": 1})


def close(version, names):
    participants = sorted({name.rpartition("-")[0] for name in names})
    if len(participants) == 1:
        return
    say("round_opened", round=version, attempt=1, participants=participants, plan="star", reason="fastest")
    say(
        "round_committed", round=version, attempt=1, participants=participants, seconds=0.1, bytes_sent=1000,
        bytes_received=1000, plan="star", reason="fastest", version=version, digest=digest(version),
    )  # fmt: skip
    write("oslo-0.version", version)


main()
