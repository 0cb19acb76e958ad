"""The policies, one file each: how often clusters synchronize, what of the model, with whom, and how it is averaged in.

`pairs` and `modules` say with whom, where that is not everybody.
"""
