"""The demonstration: real clusters on one machine train one model through a death, a join and a leave.

`controller` is the story and spawns the workers; each `worker` is one process that embeds a peer in an ordinary
training loop, and says what happens as JSON lines. The controller never looks inside a worker: what it prints,
plots and judges, it has read from those lines. Nothing here is imported by `import ictp2p`.
"""
