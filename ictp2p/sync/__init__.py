"""Agreement and training: what the mesh decides, and what workers do with it.

The pure half, without torch: `agreement` (one value per slot), `rounds` (OPEN and CLOSE), `rosters` (the group inside a
cluster), and what these say (`messages`, `values`, `profile`). The half that trains, each room on top of those below
it: `policies`, `two_level` (what they have in common), `samples`, `cluster`, `model`, `optimizers`, `state`. Between
the halves lies `mesh`, which is all that a policy knows of its peer.
"""
