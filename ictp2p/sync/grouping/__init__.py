"""Rounds in which not all average all: who meets whom follows from what was decided, and so whose part is in them.

`pairs` are drawn anew for each round; `modules` are averaged by those who hold them; `credit` says whose contribution
is in a committed round.
"""
