"""Every sample once per epoch: `sampler` is what a program uses, `leases` what the mesh agrees on."""
