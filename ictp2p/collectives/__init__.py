"""All-reduce: which tree carries which bytes (`planning`), and carrying them (`running`).

Between the two lies the `plan`, plain data that is agreed on and checked; `codecs` says how elements are written on the
wire, and `channel` what a collective asks of the connections under it. `group` is the process group inside a cluster,
which is torch's own.
"""
