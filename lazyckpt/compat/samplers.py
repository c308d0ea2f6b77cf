"""`sampler`: a source from the indices of any sampler."""

from __future__ import annotations

import json
import zlib
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice, tee
from threading import Lock
from typing import Any

from lazyckpt.core.checks import length_of
from lazyckpt.core.flow import Flow, Position
from lazyckpt.core.machine import Machine, within
from lazyckpt.core.stages import sourced
from lazyckpt.decorators import source_combinator
from lazyckpt.errors import SourceChanged

_OVER = 1 << 32  # in a position, instead of a checksum: the epoch is over
_AHEAD = 1 << 16  # items of epochs that workers may read ahead
_lock = Lock()  # several threads may ask for an epoch


class _Anew(Iterable[Any]):
    """The items of an iterator, from its beginning each time."""

    def __init__(self, items: Iterable[Any]) -> None:
        self._items = iter(items)

    def __iter__(self) -> Iterator[Any]:
        self._items, found = tee(self._items)
        return found


class _Epochs:
    """A user's sampler, epoch by epoch.

    A sampler may not be able to go back to an epoch, so the last epochs are kept. They are pickled
    with it: a worker process draws the next epoch from where the sampler is then.
    """

    def __init__(self, sampler: Any) -> None:
        self._sampler = _Anew(sampler) if isinstance(sampler, Iterator) else sampler
        wrapped = getattr(sampler, "sampler", None)  # of a batch sampler
        self._set_epoch = getattr(sampler, "set_epoch", getattr(wrapped, "set_epoch", None))
        self._begun = 0
        self._marks: dict[int, int] = {}
        self._known: dict[int, Iterable[Any]] = {}

    @property
    def length(self) -> int | None:
        return length_of(self._sampler)

    def items(self, epoch: int, window: int) -> Iterable[Any]:
        """Return an epoch's items: a list, or `_Anew` if it has no len.

        The len may be an estimate, unless there is a `window`.
        """
        with _lock:
            if epoch not in self._known:
                self._known[epoch] = self._drawn(epoch, is_exact=window > 0)
                if len(self._known) > 2 + max(window, _AHEAD) // (self.length or _AHEAD):
                    del self._known[next(iter(self._known))]
            return self._known[epoch]

    def forget(self) -> None:
        self._known.clear()

    def _drawn(self, epoch: int, *, is_exact: bool) -> Iterable[Any]:
        length = self.length
        if self._set_epoch:
            self._set_epoch(epoch)
        if length is None:
            return _Anew(self._sampler)
        if not self._set_epoch:
            for _ in range(self._begun, epoch):  # each pass advances the sampler's own generator
                deque(self._sampler, 0)
        items = list(self._sampler)
        if is_exact and len(items) != length:
            raise SourceChanged(
                f"epoch {epoch} of the sampler has {len(items)} items, but its len() was {length}"
            )
        mark = _checksum(items[:8] + items[-8:])
        if self._marks.setdefault(epoch, mark) != mark:
            raise _changed(f"epoch {epoch} has begun again")
        self._begun = max(self._begun, epoch + 1)
        return items

    def __getstate__(self) -> dict[str, Any]:
        known = {epoch: each for epoch, each in self._known.items() if isinstance(each, list)}
        return {**self.__dict__, "_known": known}


@source_combinator(
    registered=False,
    checks={"sampler": _Epochs},
    describe=lambda sampler, window: {"length": sampler.length},
)
def sampler(sampler: Any, *, window: int = 0) -> Machine[Any]:
    """Yield the indices, or batches of indices, of any sampler, epoch by epoch.

    If the sampler, or the one that a batch sampler wraps, has a `set_epoch`, it is called with the
    number of each epoch, from 0, also in worker processes. Otherwise, to resume in epoch n, a
    sampler with a `len` is iterated n times to catch up. A state contains a checksum of the last
    item.

    Args:
        sampler: An iterable that is iterated again in each epoch. To resume, it must yield the same
            items again. A one-shot iterator yields the same items in every epoch.
        window: Most items that a downstream stage reads together across the ends of epochs. If it
            is set, each epoch must have exactly `len(sampler)` items.

    Raises:
        SourceChanged: If it yields different items than before.

    State:
        The epoch, a count of items, and a checksum of the last item. If the epoch is over, it says
        so instead, because the sampler may be set to the next epoch by then.

    >>> pipeline = sampler([2, 0, 1])
    >>> list(pipeline), pipeline[1]
    ([2, 0, 1], 0)
    """
    length = sampler.length

    def opened(position: Position) -> tuple[Iterator[Any], int | None]:
        """Return an epoch's items after a position, and the epoch's length if it is known."""
        epoch, index, _ = position
        items = sampler.items(epoch, window)
        rest, size = iter(items), len(items) if isinstance(items, list) else None
        if after(epoch, *_taken(rest, index), size) != position:
            raise _changed(f"the state is {index} items into epoch {epoch}")
        return rest, size

    def after(epoch: int, index: int, last: Any, size: int | None) -> Position:
        if not index:
            return epoch, 0, 0
        return epoch, index, _OVER if index == size else _checksum(last)

    def flow(position: Position) -> Flow[Any]:
        epoch, first, check = position
        index, last, size = first, None, None

        def items() -> Iterator[Any]:
            nonlocal index, last, size
            if check == _OVER:
                return
            rest, size = opened(position)
            try:
                for last in rest:
                    index += 1
                    yield last
            except Exception:
                sampler.forget()  # an iterator that has raised looks exhausted
                raise

        return Flow(items(), lambda: after(epoch, index, last, size) if index > first else position)

    def skip(position: Position, n: int) -> tuple[Position, int]:
        epoch, index, check = position
        if not n or check == _OVER:
            return position, 0
        rest, size = opened(position)
        passed, last = _taken(rest, n)
        return (after(epoch, index + passed, last, size) if passed else position), passed

    return sourced(
        "sampler",
        first=(0,),
        check=lambda check: within("sampler", check, _OVER),
        flow=flow,
        skip=skip,
        length=length,
    )


def _taken(items: Iterator[Any], n: int) -> tuple[int, Any]:
    """Consume up to n items; return their number and the last of them."""
    return next(iter(deque(enumerate(islice(items, n), 1), 1)), (0, None))


def _changed(where: str) -> SourceChanged:
    return SourceChanged(
        f"the sampler doesn't yield the same indices again: {where}, with a different index; "
        "does it lack a seed? A state may be resumed in a different process or loader"
    )


def _checksum(value: Any) -> int:
    return zlib.crc32(json.dumps(value, default=_plain).encode())


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else type(value).__name__
