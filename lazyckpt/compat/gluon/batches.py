"""What samplers of any make give, epoch by epoch, and batches that go over ends of epochs."""

from __future__ import annotations

import json
import math
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from copy import copy
from functools import lru_cache
from itertools import islice, tee
from typing import Any

import lazyckpt as lz
from lazyckpt.core.checks import positive
from lazyckpt.core.flow import Flow, Position
from lazyckpt.core.machine import Machine, Rate, begun, within
from lazyckpt.core.stages import sourced, stateful

_OVER = 1 << 32  # in a position, instead of a checksum: nothing is left of its epoch


class SamplerEpochs:
    """A sampler of the user's: a list of an epoch's items, or where it has no len a `tee`.

    Its len may be an estimate, unless it has to be `exact`.
    """

    def __init__(self, sampler: Any, exact: bool) -> None:
        self._sampler = tee(sampler, 1)[0] if isinstance(sampler, Iterator) else sampler
        self._exact = exact
        self._begun = 0
        self._marks: dict[int, int] = {}

    @property
    def length(self) -> int | None:
        try:
            return len(self._sampler)  # type: ignore[arg-type]  # perhaps
        except (TypeError, NotImplementedError):
            return None

    def __call__(self, epoch: int) -> Iterable[Any]:
        length = self.length
        if length is None:
            return tee(self._sampler, 1)[0]
        if not hasattr(self._sampler, "set_epoch"):
            for _ in range(self._begun, epoch):  # a generator of its own moves on with each
                deque(self._sampler, 0)
        items = list(self._sampler)
        if self._exact and len(items) != length:
            raise lz.SourceChanged(
                f"epoch {epoch} of the sampler has {len(items)} items, where its len() was {length}"
            )
        mark = _checksum(items[:8] + items[-8:])
        if self._marks.setdefault(epoch, mark) != mark:
            raise _changed(f"epoch {epoch} has begun again")
        self._begun = max(self._begun, epoch + 1)
        return items


@lz.source_combinator(registered=False, describe=lambda order, described, kept: described)
def sampler_source(
    order: Callable[[int], Iterable[Any]], described: dict[str, Any], kept: int = 1
) -> Machine[Any]:
    """The items of `order(epoch)`, a list or a `tee`, of which so many are kept.

    A state has what is `described`, which has the `length` or None, and a checksum of the
    last item. At the end of an epoch it says so, for the sampler may be set to the next
    one by then.
    """
    known = lru_cache(kept)(order)

    def opened(position: Position) -> tuple[Iterator[Any], int | None]:
        """An epoch's items from a position on, and how many it has in all, if that is known."""
        epoch, index, _ = position
        items = known(epoch)
        rest, size = iter(copy(items)), len(items) if isinstance(items, list) else None
        if place(epoch, *_taken(rest, index), size) != position:
            raise _changed(f"the state stands {index} items into epoch {epoch}")
        return rest, size

    def place(epoch: int, index: int, last: Any, size: int | None) -> Position:
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
                known.cache_clear()  # an iterator that has raised looks like one that has ended
                raise

        return Flow(items(), lambda: place(epoch, index, last, size) if index > first else position)

    def skip(position: Position, n: int) -> tuple[Position, int]:
        epoch, index, check = position
        if not n or check == _OVER:
            return position, 0
        rest, size = opened(position)
        passed, last = _taken(rest, n)
        return (place(epoch, index + passed, last, size) if passed else position), passed

    return sourced(
        "sampler",
        first=(0,),
        check=lambda check: within("sampler", check, _OVER),
        flow=flow,
        skip=skip,
        length=described["length"],
    )


def _taken(items: Iterator[Any], n: int) -> tuple[int, Any]:
    """How many there are of the next n items, and the last of them."""
    return next(iter(deque(enumerate(islice(items, n), 1), 1)), (0, None))


def _changed(where: str) -> lz.SourceChanged:
    return lz.SourceChanged(
        f"the sampler does not give again what it gave: {where}, and there is another index; "
        "does it lack a seed? A state may go on in another process, or with another loader"
    )


def _checksum(value: Any) -> int:
    return zlib.crc32(json.dumps(value, default=_plain).encode())


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else type(value).__name__


@lz.combinator(registered=False, checks={"batch_size": positive})
def rolling(upstream: Machine[Any], batch_size: int) -> Machine[list[Any]]:
    """Batches of `batch_size` items each; what is left of an epoch begins the next one.

    Epoch e has the batches that are complete once e + 1 epochs of upstream are
    there and weren't after e.
    """
    length, jump = upstream.length, upstream.skip
    if jump is None or not isinstance(length, int):
        raise lz.ArgumentError(
            "ShardedDataLoader: last_batch='rollover' needs a sampler with a len() "
            "and, where it is a pipeline, random access"
        )
    endless = lz.registry["batch"].build(lz.registry["repeat"].build(upstream), batch_size)

    def flow(position: Position) -> Flow[list[Any]]:
        begin, given = position
        numbers = rolled(length, batch_size, upstream.epoch(begin))
        within("rollover", given, len(numbers))
        if begun(upstream, begin):
            raise lz.InvalidState("rollover: a state whose epoch begins in its midst")

        def batches() -> Iterator[list[Any]]:
            nonlocal given
            if left := numbers[given:]:
                epoch, index = divmod(left[0] * batch_size, length)
                start = jump(upstream.init(epoch), index)[0]
                for some in islice(endless.flow(start), len(left)):
                    given += 1
                    yield some

        return Flow(batches(), lambda: (begin, given))

    return stateful(
        "rollover",
        upstream,
        check=lambda given: within("rollover", given),
        rate=Rate(batch_size, length, epochs=math.inf),
        flow=flow,
    )


def rolled(length: int, batch_size: int, epoch: int) -> range:
    """The numbers of an epoch's batches, among those of all."""
    return range(epoch * length // batch_size, (epoch + 1) * length // batch_size)
