"""What must hold in every run, seen by someone who sees everything.

The auditor hears every notice of every peer, every message that is about to be handled, every write to a disk and the
books of the workload (`sim.ledger`). It changes nothing and raises nothing: the first breach stops the world, which
raises it as `Breach` with the seed, the time and the plan. Safety, at every event:

| module | rules |
|---|---|
| `agreement` | one value per slot, ever (A1), also of those that nobody has learnt yet; each decision follows the one before it and was accepted, on disk, under one ballot, by a quorum of the voters that this one names (A6), hence never by a minority (A8); a promise on disk is never taken back, whatever crashes (A9) |
| `rounds` | a life is told, and applies, versions in order and each once (A2); only those bound by an attempt take part in it, and no collective listens under another tag than that of an attempt which binds both ends (A5, E4) |
| `sim.ledger` | whoever holds a version holds the same bytes (A3), the exact sum over those who are bound (A4), of work that is in it once, and in no other version (A10); nothing undecided is applied (A8) |
| `leadership` | nobody takes one office twice (E1); an attempt binds a cluster once (E2), in claims that never fall (E3) |
| `routing` | the way to a destination has no loop (R1); feasibility distances strictly decrease along it (R2); what is selected is finite and was feasible (R3); a feasibility distance never worsens within a sequence number (R4), which grows by one per message at most (R5) |
| `gossip` | nobody holds a record that its owner did not make, and nobody goes back to an older one (G3) |

After the last fault there is liveness, each with a deadline made of the peers' own timers: `recovery` and `bounds`.
"""  # noqa: E501  # a table

from sim.invariants.auditor import Auditor
from sim.invariants.finding import Breach, Finding

__all__ = ["Auditor", "Breach", "Finding"]
