"""Chaos: real workers, killed, stopped, drained, restarted and added at random moments; then the books are checked.

    python -m benchmarks.chaos --seed 7 --seconds 60
    python -m benchmarks.chaos --rounds 200 --json chaos.json    # until so many are committed, and figures of it all
    python -m benchmarks.chaos --wide --seconds 600              # clusters far apart, whose lines are cut, too (root)
    python -m benchmarks.chaos --virtual --seed 0 --seeds 100    # in the simulator: repeatable, and faster

The model is a ledger. Every cluster owns one parameter, each inner step adds one to it, and the outer step *sums* what
the clusters contribute. So parameter *k* of the global state counts the inner steps of cluster *k* that the mesh has
committed, in integers that float32 holds exactly, and every worker can prove at any time that no contribution was lost
or counted twice. Afterwards the controller checks that

- each version had one digest, whoever held it, whenever;
- each version is the one before plus one contribution of every listed participant, and of nobody else; or, where
  all holders of it died, it has the bytes of an older one;
- versions went on whenever a quorum of the voters was running that heard each other, directly or over other clusters,
  and after everybody was let go again;
- no worker fell silent, ended with anything but an `IctError`, or gathered file descriptors or memory.

Workers are forked from this process, which has imported torch once: a new one is up in moments. With `--wide` each
cluster has a network of its own, behind a long, narrow and lossy line that is cut now and then; harm is as seldom there
as it is noticed late. Or workers live in a simulated world: then only the process group inside a cluster, the sockets
and the disks are not those that ship.

`books` is what a worker trains, `worker` its process, `testimony` what it says of itself when it is asked; at the
controller `crowd` keeps the workers, in `processes`, `wide` or `simulated`, `lines` what is cut, `audit` the books,
`harm` does harm, `campaign` leads it all, and `inquest` writes down why it all stands still: the end of the output is
enough to understand a failure that nobody saw.
"""
