"""What each combinator means, as naively as it can be said: the models of the law *meaning*.

A stream is a function from an epoch to an iterator; a model makes a stream of
the streams before it and the combinator's arguments.
"""

from __future__ import annotations

import builtins
import itertools
import operator
from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from itertools import count as counting
from typing import Any

import numpy as np
import toolz

from lazyckpt.call import Chain
from lazyckpt.noise import Permutation, derive, draws, hashed

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


def unfold(step: Any, init: Any) -> Items:
    def each(epoch: int) -> Iterator[Any]:
        found = step(deepcopy(init))
        while found is not None:
            state, item = found
            yield item
            found = step(state)

    return each


def count(start: int, step: int) -> Items:
    return lambda epoch: (start + number * step for number in counting())


def uniform(seed: int) -> Items:
    return lambda epoch: (bits / 2**53 for bits in _bits("uniform", seed, epoch))


def choices(weights: Any, seed: int) -> Items:
    largest = max(weights)
    sums = list(toolz.accumulate(operator.add, [weight / largest for weight in weights]))

    def each(epoch: int) -> Iterator[int]:
        for bits in _bits("choices", seed, epoch):
            edges = [int(each / sums[-1] * 2**53) for each in sums]
            yield next(i for i, edge in builtins.enumerate(edges) if bits < edge)

    return each


def _bits(name: str, seed: int, epoch: int) -> Iterator[int]:
    begin = derive(seed, name, epoch) // 4
    return (hashed(derive(seed, name), begin + n) // 2**11 for n in counting())


def once(value: Any) -> Items:
    return lambda epoch: iter([value])


def map(items: Items, fn: Any, vectorized: bool) -> Items:
    if vectorized:
        return lambda epoch: (fn(np.array([x]))[0] for x in items(epoch))
    return lambda epoch: (fn(x) for x in items(epoch))


def starmap(items: Items, fn: Any) -> Items:
    return lambda epoch: itertools.starmap(fn, items(epoch))


def tap(items: Items, fn: Any) -> Items:
    return lambda epoch: (toolz.do(fn, x) for x in items(epoch))


def enumerate(items: Items, start: int) -> Items:
    return lambda epoch: builtins.enumerate(items(epoch), start)


def random_map(items: Items, fn: Any, seed: int) -> Items:
    def each(epoch: int) -> Iterator[Any]:
        key = derive(seed, "random_map", epoch)
        for number, x in builtins.enumerate(items(epoch)):
            bits = np.random.SFC64(0)
            words = [hashed(key, 3 * number + i) for i in range(3)]
            bits.state = {**bits.state, "state": {"state": np.array([*words, 1], np.uint64)}}
            yield fn(np.random.Generator(bits), x)

    return each


def cache(items: Items, size: int) -> Items:
    return items


def filter(items: Items, predicate: Any) -> Items:
    return lambda epoch: (x for x in items(epoch) if predicate(x))


def flat_map(items: Items, fn: Any) -> Items:
    return lambda epoch: toolz.mapcat(lambda item: _opened(fn(item), epoch), items(epoch))


def _opened(inner: Any, epoch: int) -> Any:
    return model(inner)(epoch) if isinstance(inner, Chain) else inner


def unbatch(items: Items) -> Items:
    return lambda epoch: toolz.concat(items(epoch))


def scan(items: Items, step: Any, init: Any) -> Items:
    def each(epoch: int) -> Iterator[Any]:
        state = deepcopy(init)
        for x in items(epoch):
            state, output = step(state, x)
            yield output

    return each


def transition(items: Items, step: Any, init: Any, flush: Any) -> Items:
    def each(epoch: int) -> Iterator[Any]:
        state = deepcopy(init)
        for x in items(epoch):
            state, outputs = step(state, x)
            yield from _opened(outputs, epoch)
        if flush is not None:
            yield from _opened(flush(state), epoch)

    return each


def take(items: Items, n: int) -> Items:
    return lambda epoch: toolz.take(n, items(epoch))


def skip(items: Items, n: int) -> Items:
    return lambda epoch: toolz.drop(n, items(epoch))


def take_while(items: Items, predicate: Any) -> Items:
    return lambda epoch: itertools.takewhile(predicate, items(epoch))


def drop_while(items: Items, predicate: Any) -> Items:
    return lambda epoch: itertools.dropwhile(predicate, items(epoch))


def gather(items: Items, indices: Any) -> Items:
    def each(epoch: int) -> Iterator[Any]:
        every = list(items(epoch))
        return (every[i] for i in indices)

    return each


def batch(items: Items, batch_size: int, drop_last: bool, collate: Any) -> Items:
    split = toolz.partition if drop_last else toolz.partition_all
    finish = collate or toolz.identity
    return lambda epoch: (finish(list(part)) for part in split(batch_size, items(epoch)))


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
        for number, block in builtins.enumerate(toolz.partition_all(block_size, items(epoch))):
            order = Permutation(derive(seed, "block_shuffle", epoch, number), len(block))
            yield from (block[order[i]] for i in range(len(block)))

    return each


def repeat(items: Items, count: int | None) -> Items:
    def epochs(epoch: int) -> Iterable[int]:
        return counting(epoch << 32) if count is None else range(epoch * count, (epoch + 1) * count)

    return lambda epoch: toolz.mapcat(items, epochs(epoch))


def shard(items: Items, num_shards: int, index: int) -> Items:
    return lambda epoch: toolz.take_nth(num_shards, toolz.drop(index, items(epoch)))


def zip(pipelines: tuple[Chain, ...]) -> Items:
    streams = [model(p) for p in pipelines]
    return lambda epoch: builtins.zip(*[s(epoch) for s in streams], strict=False)


def concat(pipelines: tuple[Chain, ...]) -> Items:
    streams = [model(p) for p in pipelines]
    return lambda epoch: toolz.mapcat(lambda stream: stream(epoch), streams)


def case(selector: Chain, pipelines: tuple[Chain, ...]) -> Items:
    rows = zip((selector, *pipelines))
    return lambda epoch: (row[1:][row[0]] for row in rows(epoch))


def switch(condition: Chain, if_true: Chain, if_false: Chain) -> Items:
    rows = zip((condition, if_true, if_false))
    return lambda epoch: (yes if told else no for told, yes, no in rows(epoch))


MODELS: dict[str, Callable[..., Items]] = {
    f.__name__: f
    for f in (
        source, columns, map, filter, flat_map, unbatch, scan, take, skip, batch,
        shuffle, block_shuffle, repeat, shard, zip, concat,
        unfold, count, uniform, choices, once, starmap, tap, enumerate, random_map,
        cache, transition, take_while, drop_while, gather, case, switch,
    )
}  # fmt: skip
