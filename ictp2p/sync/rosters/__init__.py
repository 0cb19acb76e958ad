"""Who is in the process group inside a cluster (`machine`, and `office` at the leader), and on what (`devices`)."""
