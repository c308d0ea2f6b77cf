"""What batches of indices a loader gets: from samplers of any make, epoch by epoch."""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import Any

import numpy as np

from lazyckpt.combinators.source import source
from lazyckpt.core.checks import brief, checked, natural, positive
from lazyckpt.core.flow import Flow, Position, counted
from lazyckpt.core.machine import Machine, Rate, begun, within
from lazyckpt.core.stages import sourced, stateful
from lazyckpt.decorators import combinator, source_combinator
from lazyckpt.errors import ArgumentError, InvalidState, SourceChanged
from lazyckpt.pipeline import Pipeline
from lazyckpt.run import Run
from lazyckpt.state.algebra import init


def seeded(seed: int | None) -> int:
    """The seed; or one out of NumPy's global generator, so that `np.random.seed` decides."""
    if seed is None:
        return int(np.random.randint(np.iinfo(np.int32).max))
    return int(checked("gluon", "seed", seed, natural))


class Sampler:
    """A sampler as a pipeline of indices, or of batches of them. Each `iter` is another epoch."""

    def __init__(self, pipeline: Pipeline[Any]) -> None:
        self.pipeline = pipeline
        self._epoch = 0

    def __iter__(self) -> Iterator[Any]:
        epoch, self._epoch = self._epoch, self._epoch + 1
        return Run(self.pipeline, init(self.pipeline, epoch=epoch))

    def __len__(self) -> int:
        return len(self.pipeline)


def sampled(sampler: Any, rolling_by: int = 0) -> Pipeline[Any]:
    """What a sampler gives; `rolling_by` is the batch size where batches go over ends of epochs."""
    if isinstance(sampler, Sampler):
        return sampler.pipeline
    if isinstance(sampler, Pipeline):
        return sampler
    if isinstance(sampler, range):
        return source(sampler)
    if not hasattr(sampler, "__iter__") and not hasattr(sampler, "__getitem__"):
        raise ArgumentError(f"ShardedDataLoader: a sampler is iterable, got {brief(sampler)}")
    pipeline: Pipeline[Any] = sampler_source(SamplerEpochs(sampler, rolling_by))
    return pipeline


class SamplerEpochs:
    """What a sampler of the user's gave, kept as long as it may be asked for again."""

    def __init__(self, sampler: Any, rolling_by: int) -> None:
        self._sampler = sampler
        self._kept = 2 + rolling_by // (self.length or 1) if rolling_by else 1  # epochs
        self._is_once = isinstance(sampler, Iterator)
        self._begun = 0
        self._epochs: dict[int, tuple[list[Any], Iterator[Any]]] = {}
        self._marks: dict[int, int] = {}  # of the epochs of one with a len

    @property
    def length(self) -> int | None:
        try:
            return len(self._sampler)
        except (TypeError, NotImplementedError):
            return None

    @property
    def described(self) -> dict[str, Any]:
        return {} if self.length is None else {"length": self.length}

    def upto(self, epoch: int, stop: int) -> list[Any]:
        """An epoch's items: at least `stop` of them, or all that there are."""
        epoch = 0 if self._is_once else epoch
        if epoch not in self._epochs:
            self._begin(epoch)
        items, stream = self._epochs[epoch]
        items.extend(islice(stream, max(0, stop - len(items))))
        return items

    def _begin(self, epoch: int) -> None:
        is_sized = self.length is not None
        if is_sized and not hasattr(self._sampler, "set_epoch"):
            for _ in range(self._begun, epoch):  # a generator of its own moves on with each
                for _ in self._sampler:
                    pass
        stream = iter(self._sampler)
        items = list(stream) if is_sized else []
        if self._marks.setdefault(epoch, mark := _checksum([items[:8] + items[-8:]], 1)) != mark:
            raise _changed(f"epoch {epoch} has begun again")
        self._begun = max(self._begun, epoch + 1)
        kept = {e: some for e, some in self._epochs.items() if epoch - self._kept < e < epoch}
        self._epochs = {**kept, epoch: (items, stream)}


class EpochPlan:
    """What a function of the epoch gives, worked out once an epoch."""

    def __init__(self, made: Callable[[int], list[Any]], length: int, **described: Any) -> None:
        self.length, self.described = length, {"length": length, **described}
        self._made = made
        self._kept: tuple[int, list[Any]] | None = None

    def upto(self, epoch: int, stop: int) -> list[Any]:
        if self._kept is None or self._kept[0] != epoch:
            self._kept = epoch, self._made(epoch)
        return self._kept[1]


@source_combinator(registered=False, describe=lambda epochs: epochs.described)
def sampler_source(epochs: SamplerEpochs | EpochPlan) -> Machine[Any]:
    """The items of a sampler or a plan; a state has a checksum of the last one given."""

    def verified(position: Position) -> list[Any]:
        epoch, index, check = position
        items = epochs.upto(epoch, index)
        if len(items) < index or check != _checksum(items, index):
            raise _changed(f"the state stands {index} items into epoch {epoch}")
        return items

    def flow(position: Position) -> Flow[Any]:
        epoch, index, _ = last = position

        def items() -> Iterator[Any]:
            nonlocal index
            if index != epochs.length:
                verified(position)
            while index != epochs.length:  # then no look: the sampler may be set to the next one
                some = epochs.upto(epoch, index + 1)
                if len(some) == index:
                    return
                index += 1
                yield some[index - 1]

        def reached() -> Position:
            nonlocal last  # the sampler may have gone on to another epoch
            if last[1] != index:
                last = epoch, index, _checksum(epochs.upto(epoch, index), index)
            return last

        return Flow(items(), reached)

    def skip(position: Position, n: int) -> tuple[Position, int]:
        if not n:
            return position, 0
        epoch, index, _ = position
        verified(position)
        items = epochs.upto(epoch, index + n)
        passed = min(n, len(items) - index)
        return (epoch, index + passed, _checksum(items, index + passed)), passed

    return sourced(
        "sampler",
        first=(0,),
        check=lambda check: within("sampler", check, 1 << 32),
        flow=flow,
        skip=skip,
        length=epochs.length,
    )


def _changed(where: str) -> SourceChanged:
    return SourceChanged(
        f"the sampler does not give again what it gave: {where}, and there is another index; "
        "does it lack a seed? A state may go on in another process, or with another loader"
    )


def _checksum(items: list[Any], index: int) -> int:
    """Of the item before an index."""
    return zlib.crc32(json.dumps(items[index - 1], default=_plain).encode()) if index else 0


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else type(value).__name__


@combinator(registered=False, checks={"batch_size": positive})
def rolling(upstream: Machine[Any], batch_size: int) -> Machine[list[Any]]:
    """Batches of `batch_size` items each; what is left of an epoch begins the next one.

    Epoch e has the batches that are complete once e + 1 epochs of upstream are
    there and weren't after e.
    """
    if upstream.skip is None or not isinstance(upstream.length, int):
        raise ArgumentError(
            "ShardedDataLoader: last_batch='rollover' needs a sampler with a len() "
            "and, where it is a pipeline, random access"
        )
    length, jump = upstream.length, upstream.skip

    def entered(position: Position) -> tuple[int, int, int]:
        """Epoch, batches given, and how many it has."""
        begin, given = position
        epoch = upstream.epoch(begin)
        count = rolled(length, batch_size, epoch + 1) - rolled(length, batch_size, epoch)
        return epoch, given, count

    def flow(position: Position) -> Flow[list[Any]]:
        epoch, given, count = entered(position)

        def passes(number: int, index: int) -> Iterator[Iterator[Any]]:
            while True:
                items, taken = counted(upstream.flow(jump(upstream.init(number), index)[0]))
                yield items
                if index + taken() != length:
                    raise SourceChanged(
                        f"epoch {number} of the sampler has {index + taken()} items, "
                        f"where its len() was {length}"
                    )
                number, index = number + 1, 0

        def batches() -> Iterator[list[Any]]:
            nonlocal given
            if given == count:
                return
            first = rolled(length, batch_size, epoch) + given
            items = chain.from_iterable(passes(*divmod(first * batch_size, length)))
            while given < count:
                some = list(islice(items, batch_size))
                given += 1
                yield some

        return Flow(batches(), lambda: (position[0], given))

    def skip(position: Position, n: int) -> tuple[Position, int]:
        _, given, count = entered(position)
        passed = min(n, count - given)
        return (position[0], given + passed), passed

    made = stateful(
        "rollover",
        upstream,
        check=lambda given: within("rollover", given),
        rate=Rate(batch_size, length, epochs=math.inf),
        flow=flow,
        skip=skip,
    )

    def check(position: Position) -> None:
        made.check(position)
        _, given, count = entered(position)
        within("rollover", given, count)
        if begun(upstream, position[0]):
            raise InvalidState("rollover: a state whose epoch begins in its midst")

    return made._replace(check=check)


def rolled(length: int, batch_size: int, epoch: int) -> int:
    """How many whole batches the epochs before this one have."""
    return epoch * length // batch_size
