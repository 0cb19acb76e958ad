"""All-reduce: which tree carries which bytes (`planner`, `schedules`), and carrying them (`exchange`, `execute`).

`local` is the process group inside a cluster, which is torch's own.
"""
