"""What an auditor finds, and how it is told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

Complain = Callable[[str, str], None]
"""Told the rule that was broken, and how."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One breach of a rule."""

    rule: str
    at: float
    text: str

    def __str__(self) -> str:
        return f"{self.rule} at {self.at:.6f} s: {self.text}"


class Breach(AssertionError):
    """A rule was broken. The message has all that is needed to see it again."""

    def __init__(self, finding: Finding, told: str) -> None:
        super().__init__(f"{finding}\n{told}")
        self.finding = finding
