"""Agreement and training: what the mesh decides, and what workers do with it.

The pure half: `agreement` (one value per slot), `rounds` (OPEN and CLOSE), `roster` (the group inside a cluster),
`transfer` (fetching a state). The half that knows torch: `state`, `policy` and its parts, `local_sgd`, `diloco`.
"""
