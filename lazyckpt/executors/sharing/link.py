"""The network between ranks that share work: their numbers, and messages between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeAlias

Receive: TypeAlias = Callable[[int, memoryview], None]
"""Takes a message in, with the rank it came from. Called in the link's own thread."""

Leave: TypeAlias = Callable[[int, str], None]
"""Notes that a rank is gone: why, or "" if it said that it leaves. After its last message."""


class Link(Protocol):
    """A connection of this rank with all others.

    The messages of a rank arrive whole, once, and in order.

    Attributes:
        rank: The number of this rank.
        size: The number of ranks.
    """

    rank: int
    size: int

    def open(self, receive: Receive, leave: Leave) -> None:
        """Begin to receive."""

    def post(self, message: bytes) -> None:
        """Send a message to all other ranks, without waiting."""

    def silence(self, rank: int) -> float:
        """Return the seconds since a rank was last heard."""

    def close(self) -> None:
        """Send all posted messages, announce that this rank leaves, and disconnect. Idempotent."""


class Meeting(Protocol):
    """A place where the ranks that share work find each other."""

    def join(self, told: Mapping[str, Any]) -> Link:
        """Wait until all ranks have joined with equal settings, and return this rank's link.

        Args:
            told: The settings that must be equal on all ranks, by the names that errors show.

        Raises:
            RankMissing: A rank didn't join in time.
            PipelineError: The ranks differ; the error says how.
        """
