"""The global state: what the mesh agrees on, how it is described, sent, kept in files, and what else belongs to it."""
