"""The network between ranks that share work: their numbers, and messages between them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

from lazyckpt.executors.sharing.presence import Presence

Receive: TypeAlias = Callable[[int, memoryview], None]
"""Takes a message in, with the rank it came from. Called in the link's own thread."""

Leave: TypeAlias = Callable[[int, str], None]
"""Notes that a rank is gone: why, or "" if it said that it leaves. After its last message."""


Nodes: TypeAlias = tuple[tuple[int, ...], ...]
"""The ranks of each node. The first one, the leader, reads for the others; () if there are none."""


SHARDS = "shards"
"""The setting that differs between ranks: [num_shards, index] of each `shard`."""


class Reach(NamedTuple):
    """How far a rank reads ahead.

    All ranks take the least of all, so that none waits for an item that a different rank, which
    waits for it in turn, will not reach before, and none makes one that another never asks for.

    Attributes:
        workers: Its workers for its own tasks, after `shard`.
        buffer_size: Its buffer.
        common_workers: Its workers for common tasks, unless it does none.
    """

    workers: int
    buffer_size: int
    common_workers: int = 1 << 30


def least(reaches: Iterable[Sequence[int]]) -> Reach:
    """Return the least workers and the least buffer."""
    return Reach(*map(min, zip(*reaches, strict=True)))


class Role(NamedTuple):
    """The part of a rank in the work that ranks share.

    Attributes:
        leader: The rank that reads for this one; its own number if it reads itself.
        followers: The ranks that it reads for.
        makers: The ranks that read, and so do the common tasks.
    """

    leader: int
    followers: tuple[int, ...]
    makers: tuple[int, ...]

    def peers(self, rank: int) -> list[int]:
        """Return the ranks that a rank with this role is connected to, in order."""
        if self.leader != rank:
            return [self.leader]
        return sorted({*self.makers, *self.followers} - {rank})


def role_of(rank: int, size: int, nodes: Nodes) -> Role:
    """Return the role of a rank."""
    nodes = nodes or tuple([(each,) for each in range(size)])
    leader, *others = next(node for node in nodes if rank in node)
    followers = tuple(others) if rank == leader else ()
    return Role(leader, followers, tuple(sorted(node[0] for node in nodes)))


class Link(Protocol):
    """The connections of this rank to other ranks.

    Messages from a rank arrive whole, exactly once, and in order.

    Attributes:
        rank: The number of this rank.
        makers: The ranks that do the common tasks.
        reach: The least reach of all ranks.
    """

    rank: int
    makers: Sequence[int]
    reach: Reach

    def open(self, receive: Receive, leave: Leave) -> None:
        """Start to receive messages."""

    def post(self, message: bytes) -> None:
        """Send a message to all other makers, without waiting."""

    def send(self, rank: int, message: bytes) -> None:
        """Send a message to one rank, without waiting."""

    def silence(self, rank: int) -> float:
        """Return the seconds since the last message from a rank."""

    def close(self) -> None:
        """Send all posted messages, announce that this rank leaves, and disconnect. Idempotent."""


class Meeting(Protocol):
    """A way for the ranks that share work to find each other.

    Attributes:
        rank: The number of this rank.
        nodes: The ranks of each node, if one rank per node reads.
        role: The role of this rank.
        presence: The answers to ranks that wait for this one; None if it gives none.
    """

    @property
    def rank(self) -> int: ...

    @property
    def nodes(self) -> Nodes: ...

    @property
    def role(self) -> Role: ...

    @property
    def presence(self) -> Presence | None: ...

    def join(self, told: Mapping[str, Any], reach: Reach, look: Callable[[], None]) -> Link:
        """Wait until all ranks have joined with equal settings, and return this rank's link.

        Args:
            told: The settings that must be equal on all ranks, by the names that errors show; and
                `SHARDS`, of which all ranks must have each index.
            reach: The reach of this rank.
            look: Called again and again while this waits; its error ends the wait.

        Raises:
            RankMissing: A rank didn't join in time.
            PipelineError: The ranks differ; the error says how.
        """

    def leave(self) -> None:
        """Let go of what is only needed to join, until the next time."""
