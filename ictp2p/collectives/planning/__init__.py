"""Which tree carries which bytes, and why: candidates, their times on measured links, and the bound on them all.

`planner` chooses; `search` says among what, `schedules` has the shapes.
"""
