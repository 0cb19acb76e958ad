"""Rounds on the chain of decisions: OPEN says who takes part and how, CLOSE says whether it succeeded.

`machine` is what a peer runs. `coordinator` is who decides what comes next, `participant` a leader who
brings something, `leaving` a voter who goes; the rest is what these three go by.
"""
