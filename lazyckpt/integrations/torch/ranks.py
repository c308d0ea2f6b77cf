"""Messages between the ranks of a process group."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from time import monotonic
from typing import Any

import torch
import torch.distributed as dist

from lazyckpt.errors import RankMissing
from lazyckpt.integrations.torch.reports import listed

_ROOM = 2048  # bytes of a message in the first round; the rest is sent in a second round
_HEAD = 8  # bytes of a message's length


class Ranks:
    """The ranks of a process group, with separate connections between them.

    The connections are gloo's, so they don't interfere with the group's own collectives, whatever
    its backend.

    Args:
        group: The process group; all of its ranks make this object at the same time.
        timeout: Seconds to wait for all ranks.

    Attributes:
        rank: This rank in the group.
        size: The number of ranks.
    """

    def __init__(self, group: dist.ProcessGroup, timeout: float) -> None:
        self.rank, self.size = group.rank(), group.size()
        self._timeout = timeout
        store = group.get_group_store()
        number = store.add(f"lazyckpt/{self.rank}", 1)  # the same on every rank
        prefixed: Any = dist.PrefixStore  # type: ignore[attr-defined]  # its stubs lack it
        self._store = prefixed(f"lazyckpt/{number}", store)
        self._meetings = 0
        limit = timedelta(seconds=timeout)
        with self._meeting():
            self._store.wait([self._came(rank) for rank in range(self.size)], limit)
            self._gloo: Any = dist.ProcessGroupGloo(
                prefixed("gloo", self._store), self.rank, self.size, limit
            )

    @property
    def rank_and_size(self) -> tuple[int, int]:
        """This rank, and the number of ranks."""
        return self.rank, self.size

    def exchange(self, message: bytes) -> list[bytes]:
        """Return the messages of all ranks, in their order; all ranks call it equally often.

        Raises:
            RankMissing: If a rank doesn't call it within the time limit.
        """
        with self._meeting():
            return self._gathered(message)

    def _gathered(self, message: bytes) -> list[bytes]:
        size = len(message)
        found = self._gather(size.to_bytes(_HEAD, "big") + message[:_ROOM], _HEAD + _ROOM)
        sizes = [int.from_bytes(each[:_HEAD], "big") for each in found]
        if max(sizes) > _ROOM:
            rest = self._gather(message[_ROOM:], max(sizes) - _ROOM)
            found = [one + other for one, other in zip(found, rest, strict=True)]
        return [each[_HEAD : _HEAD + size] for each, size in zip(found, sizes, strict=True)]

    def _gather(self, message: bytes, room: int) -> list[bytes]:
        mine = torch.frombuffer(bytearray(message.ljust(room, b"\0")), dtype=torch.uint8)
        found = [torch.empty_like(mine) for _ in range(self.size)]
        self._gloo.allgather([found], [mine]).wait()
        return [each.numpy().tobytes() for each in found]

    @contextmanager
    def _meeting(self) -> Iterator[None]:
        """Track a step that all ranks do together; a `RankMissing` names those that didn't come."""
        begun = monotonic()
        self._meetings += 1
        self._store.set(self._came(self.rank), "")
        if self._meetings > 2:  # a rank that fails in a meeting looks up who came to it
            self._store.delete_key(self._came(self.rank, self._meetings - 2))
        try:
            yield
        except RuntimeError as error:
            raise self._missing(begun + self._timeout) from error

    def _came(self, rank: int, meeting: int = 0) -> str:
        return f"{meeting or self._meetings}/{rank}"

    def _missing(self, end: float) -> RankMissing:
        missing = [rank for rank in range(self.size) if not self._comes(rank, end)]
        if self.rank in missing:
            reason, missing = "the missing ranks are unknown, because the store is gone", []
        elif not missing:
            reason = "a connection was lost, although all ranks came"
        else:
            reason = f"{listed(missing)} did not come"
        return RankMissing(
            f"loader: of {self.size} ranks that agree within timeout={self._timeout:g} s, {reason}",
            missing,
        )

    def _comes(self, rank: int, end: float) -> bool:
        try:
            self._store.wait([self._came(rank)], timedelta(seconds=max(end - monotonic(), 0.01)))
        except RuntimeError:
            return False
        return True
