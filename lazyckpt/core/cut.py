"""Parts of sequences whose tokens are read only when they are needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


class Cut(NamedTuple):
    """A part of a sequence. While a row is being planned, only its length matters.

    Attributes:
        whole: Function that returns the sequence's arrays when a row is filled, shared by its cuts.
        begin: Index of the first token.
        end: Index after the last token.
    """

    whole: Callable[[], dict[str, Any]]
    begin: int
    end: int

    @property
    def features(self) -> dict[str, Any]:
        """Return arrays with one value per token."""
        return {name: each[self.begin : self.end] for name, each in self.whole().items()}
