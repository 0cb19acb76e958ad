"""The process group inside a cluster: torch's Gloo (`local`), and a vendor's library beside it (`library`)."""
