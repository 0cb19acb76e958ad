"""The edge: sockets, TLS and frames; who is let in, and what strangers are told.

`network` has the sockets, `security` and `credential` the keys, `preamble` and `opening` how a connection begins, and
`control` the frames on it.
"""
