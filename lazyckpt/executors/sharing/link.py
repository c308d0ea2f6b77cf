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
        rank: The number of this one.
        size: How many there are.
    """

    rank: int
    size: int

    def open(self, receive: Receive, leave: Leave) -> None:
        """Begin to receive."""

    def post(self, message: bytes) -> None:
        """Send a message to all others, without waiting."""

    def silence(self, rank: int) -> float:
        """Return for how many seconds nothing has been heard of a rank."""

    def close(self) -> None:
        """Send all posted messages, say that this rank leaves, and disconnect. Idempotent."""


class Meeting(Protocol):
    """Where the ranks that share work find each other."""

    def join(self, told: Mapping[str, Any]) -> Link:
        """Wait until all ranks have come with the same, and return the link of this one.

        Args:
            told: What has to be equal on all ranks, by names that errors show.

        Raises:
            RankMissing: A rank didn't come in time.
            PipelineError: The ranks differ; it says in what.
        """
