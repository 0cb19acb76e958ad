"""The model that a program trains, beside the state that the mesh agrees on."""
