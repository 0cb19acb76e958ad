"""Running a plan: which chunk may be sent when (`exchange`), bound to tensors and connections (`execute`).

The arithmetic is in `sums`, for encoded chunks in `coding`, and for what goes in one shot in `alike`.
"""
