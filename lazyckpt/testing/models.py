"""What each combinator means, as naively as it can be said: the models of the law *meaning*.

A stream is a function from an epoch to an iterator; a model makes a stream of
the streams before it and the combinator's arguments.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator
from copy import deepcopy
from itertools import count as counting
from itertools import islice
from typing import Any

from lazyckpt.call import Chain
from lazyckpt.noise import Permutation, derive, draws

Items = Callable[[int], Iterator[Any]]


def model(pipeline: Chain) -> Items:
    """The meaning of a pipeline of modelled combinators."""
    first, *rest = pipeline.calls
    items: Items = MODELS[first.name](**first.arguments)
    for call in rest:
        items = MODELS[call.name](items, **call.arguments)
    return items


def source(data: Any) -> Items:
    return lambda epoch: iter(list(data))


def columns(arrays: dict[str, Any]) -> Items:
    rows = builtins.zip(*arrays.values(), strict=True)
    table = [dict(builtins.zip(arrays, row, strict=True)) for row in rows]
    return lambda epoch: iter(table)


def map(items: Items, fn: Any) -> Items:
    return lambda epoch: (fn(x) for x in items(epoch))


def filter(items: Items, predicate: Any) -> Items:
    return lambda epoch: (x for x in items(epoch) if predicate(x))


def flat_map(items: Items, fn: Any) -> Items:
    def each(epoch: int) -> Iterator[Any]:
        for x in items(epoch):
            inner = fn(x)
            yield from model(inner)(epoch) if isinstance(inner, Chain) else inner

    return each


def unbatch(items: Items) -> Items:
    return lambda epoch: (x for batch in items(epoch) for x in batch)


def scan(items: Items, step: Any, init: Any) -> Items:
    def each(epoch: int) -> Iterator[Any]:
        state = deepcopy(init)
        for x in items(epoch):
            state, output = step(state, x)
            yield output

    return each


def take(items: Items, n: int) -> Items:
    return lambda epoch: islice(items(epoch), n)


def skip(items: Items, n: int) -> Items:
    return lambda epoch: islice(items(epoch), n, None)


def batch(items: Items, batch_size: int, drop_last: bool, collate: Any) -> Items:
    def each(epoch: int) -> Iterator[Any]:
        held: list[Any] = []
        for x in items(epoch):
            held = [*held, x]
            if len(held) == batch_size:
                yield collate(held) if collate else held
                held = []
        if held and not drop_last:
            yield collate(held) if collate else held

    return each


def shuffle(items: Items, buffer_size: int | None, seed: int) -> Items:
    def whole(epoch: int) -> Iterator[Any]:
        every = list(items(epoch))
        order = Permutation(derive(seed, "shuffle", epoch), max(1, len(every)))
        return (every[order[i]] for i in range(len(every)))

    def streaming(epoch: int) -> Iterator[Any]:
        assert buffer_size is not None
        key = derive(seed, "shuffle", "buffer", epoch)
        held: list[Any] = []
        for t, x in builtins.enumerate(items(epoch)):
            if t < buffer_size:
                held.append(x)
            else:
                slot = int(draws(key, t, t + 1, buffer_size)[0])
                yield held[slot]
                held[slot] = x
        order = Permutation(derive(seed, "shuffle", "flush", epoch), max(1, len(held)))
        yield from (held[order[i]] for i in range(len(held)))

    return whole if buffer_size is None else streaming


def block_shuffle(items: Items, block_size: int, seed: int) -> Items:
    def each(epoch: int) -> Iterator[Any]:
        stream = items(epoch)
        for number in counting():
            block = list(islice(stream, block_size))
            if not block:
                return
            order = Permutation(derive(seed, "block_shuffle", epoch, number), len(block))
            yield from (block[order[i]] for i in range(len(block)))

    return each


def repeat(items: Items, count: int | None) -> Items:
    def each(epoch: int) -> Iterator[Any]:
        if count is None:
            for number in counting(epoch << 32):
                yield from items(number)
        else:
            for number in range(epoch * count, epoch * count + count):
                yield from items(number)

    return each


def shard(items: Items, num_shards: int, index: int) -> Items:
    return lambda epoch: islice(items(epoch), index, None, num_shards)


def zip(pipelines: tuple[Chain, ...]) -> Items:
    streams = [model(p) for p in pipelines]
    return lambda epoch: builtins.zip(*[s(epoch) for s in streams], strict=False)


def concat(pipelines: tuple[Chain, ...]) -> Items:
    streams = [model(p) for p in pipelines]
    return lambda epoch: (x for s in streams for x in s(epoch))


MODELS: dict[str, Callable[..., Items]] = {
    f.__name__: f
    for f in (
        source, columns, map, filter, flat_map, unbatch, scan, take, skip, batch,
        shuffle, block_shuffle, repeat, shard, zip, concat,
    )
}  # fmt: skip
