"""Optimizers: the outer ones, which move the agreed parameters, and what inner ones need to live with that."""
