"""Who is in the process group inside a cluster: `machine` agrees on rosters, `devices` on the library that they use."""
