"""The control plane of one peer: every machine, stacked, and not a line of I/O.

`Core` (in `stack`) is told what the driver saw (a connection opened, a frame arrived, time passed) and answers
with what the driver must do. `cards` are the records that gossip carries, `directory` knows who is who,
`packets` names the channels and decides the next hop, `dialing` decides which connections ought to exist.
"""
