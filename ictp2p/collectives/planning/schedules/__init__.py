"""The shapes that a plan may be packed from, one file each. All are trees (see `plan`)."""
