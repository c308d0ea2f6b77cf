"""The ranks of a process group, which tell each other something, all at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from time import monotonic
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import PrefixStore  # type: ignore[attr-defined]  # it is documented

from lazyckpt.errors import RankMissing
from lazyckpt.integrations.torch.reports import listed

_ROOM = 2048  # bytes that a message has at once; what is longer comes in a second round
_HEAD = 8  # bytes of its length


class Ranks:
    """The ranks of a process group, joined by connections of their own.

    These are gloo's, so that nothing here comes between the collectives of the
    group, whatever its backend is.

    Args:
        group: The process group; all of its ranks make this at the same time.
        timeout: How many seconds to wait for all.

    Attributes:
        rank: This one, in the group.
        size: How many there are.
    """

    def __init__(self, group: dist.ProcessGroup, timeout: float) -> None:
        self.rank, self.size = group.rank(), group.size()
        self._timeout = timeout
        store = group.get_group_store()
        number = store.add(f"lazyckpt/{self.rank}", 1)  # the same on every rank
        self._store = PrefixStore(f"lazyckpt/{number}", store)
        self._meetings = 0
        limit = timedelta(seconds=timeout)
        with self._meeting():
            self._store.wait([self._came(rank) for rank in range(self.size)], limit)
            self._gloo: Any = dist.ProcessGroupGloo(
                PrefixStore("gloo", self._store), self.rank, self.size, limit
            )

    @property
    def who(self) -> tuple[int, int]:
        """This rank, and of how many."""
        return self.rank, self.size

    def exchange(self, message: bytes) -> list[bytes]:
        """What every rank says, in their order. All ranks call it, equally often.

        Raises:
            RankMissing: A rank did not, within the time limit.
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
        """What all ranks do together; a `RankMissing` says who didn't come."""
        begun = monotonic()
        self._meetings += 1
        self._store.set(self._came(self.rank), "")
        if self._meetings > 2:  # who fails in one meeting looks for those who came to it
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
            who, missing = "which ranks are missing can't be told, for the store has gone", []
        elif not missing:
            who = "a connection was lost, though all ranks came"
        else:
            who = f"{listed(missing)} did not come"
        return RankMissing(
            f"loader: of {self.size} ranks that agree within timeout={self._timeout:g} s, {who}",
            missing,
        )

    def _comes(self, rank: int, end: float) -> bool:
        try:
            self._store.wait([self._came(rank)], timedelta(seconds=max(end - monotonic(), 0.01)))
        except RuntimeError:
            return False
        return True
