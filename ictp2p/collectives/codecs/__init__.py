"""How elements are written on the wire: one file per codec.

To add one: a file with its class (`codec.Codec`), its line in `schemes.SCHEMES` and its price in `prices.PRICES`.
`prices` knows no torch, for the planner.
"""
