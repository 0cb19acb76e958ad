"""Collective calls below the policies: `all_reduce`, `broadcast`, `barrier`, `sync_state`.

`api` is what a user calls, `runner` takes one call after the other through as many process groups as it needs,
`heads` is how the workers of a cluster find out where each of them stands, `rounds` and `state` are the calls
themselves, `chronicle` knows which rounds passed without us, `tensors` is about the memory of a call.
"""
