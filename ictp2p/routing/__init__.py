"""Routing: a loop-free way to every cluster, over relays where there is no direct one. Start at `babel`."""
