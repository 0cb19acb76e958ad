"""Inside one cluster: the groups that its workers train in, their gradients averaged, and newcomers made equal."""
