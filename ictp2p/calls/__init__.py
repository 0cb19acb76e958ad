"""Collective calls below the policies: `all_reduce`, `broadcast`, `barrier`, `sync_state`.

`engine` is what `collective_calls` calls. `runner` takes one call after the other through as many process groups as it
needs; `heads` is how the workers of a cluster find out where each of them stands, `handing` how one gets the answer
that it missed. The calls themselves are `rounds`, `parts` and `state`: a `round_call`, where it is one, is `leading` at
one worker of a cluster, and the others hear of it by `telling`. `chronicle` knows which rounds passed without us,
`answers` has the result of the newest, and `tensors` is about the memory of a call. `messages` go between leaders.
"""
