"""One peer at work: its machines on sockets and by the clock, its data connections, and what follows for each.

`async_peer` puts these parts together, and takes all of them apart.
"""
