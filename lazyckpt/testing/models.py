"""What each combinator means, as naively as it can be said: the models of the law *meaning*.

A stream is a function from an epoch to an iterator; a model makes a stream of
the streams before it and the combinator's arguments.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from fractions import Fraction
from itertools import accumulate
from itertools import count as counting
from typing import Any

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


def map(items: Items, fn: Any) -> Items:
    return lambda epoch: (fn(x) for x in items(epoch))


def filter(items: Items, predicate: Any) -> Items:
    return lambda epoch: (x for x in items(epoch) if predicate(x))


def flat_map(items: Items, fn: Any) -> Items:
    return lambda epoch: toolz.mapcat(lambda item: expanded(fn(item), epoch), items(epoch))


def expanded(inner: Any, epoch: int) -> Any:
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


def take(items: Items, n: int) -> Items:
    return lambda epoch: toolz.take(n, items(epoch))


def skip(items: Items, n: int) -> Items:
    return lambda epoch: toolz.drop(n, items(epoch))


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


def shard(items: Items, num_shards: int, index: int, contiguous: bool, even: Any) -> Items:
    def hand(epoch: int) -> list[Any]:
        every = list(toolz.take(10_000, items(epoch)))
        whole = len(every) // num_shards * num_shards
        if even == "drop":
            every = every[:whole]
        if even == "pad" and whole < len(every):
            every = list(toolz.take(whole + num_shards, toolz.concat([every] * (num_shards + 1))))
        if not contiguous:
            return every[index::num_shards]
        hands = [len(every[rank::num_shards]) for rank in range(num_shards)]
        return every[sum(hands[:index]) : sum(hands[: index + 1])]

    return lambda epoch: iter(hand(epoch))


def zip(pipelines: tuple[Chain, ...], strict: bool) -> Items:
    streams = [model(p) for p in pipelines]
    return lambda epoch: builtins.zip(*[s(epoch) for s in streams], strict=strict)


def concat(pipelines: tuple[Chain, ...]) -> Items:
    streams = [model(p) for p in pipelines]
    return lambda epoch: toolz.mapcat(lambda stream: stream(epoch), streams)


def interleave(pipelines: tuple[Chain, ...], block_length: int) -> Items:
    streams = [model(p) for p in pipelines]

    def each(epoch: int) -> Iterator[Any]:
        rest = [list(s(epoch)) for s in streams]
        while any(rest):
            for number, items in builtins.enumerate(rest):
                yield from items[:block_length]
                rest[number] = items[block_length:]

    return each


def interleave_map(items: Items, fn: Any, cycle_length: int, block_length: int) -> Items:
    def each(epoch: int) -> Iterator[Any]:
        inputs = items(epoch)
        slots: list[list[Any] | None] = [None] * cycle_length
        nothing = object()
        is_over = False
        while not is_over or any(slot is not None for slot in slots):
            for number in range(cycle_length):
                if slots[number] is None and not is_over:
                    item = next(inputs, nothing)
                    is_over = item is nothing
                    slots[number] = None if is_over else list(expanded(fn(item), epoch))
                open_one = slots[number]
                if open_one is not None:
                    yield from open_one[:block_length]
                    left = open_one[block_length:]
                    slots[number] = left if len(open_one) >= block_length else None

    return each


def mix(pipelines: Any, weights: Any, seed: Any, stop: str, deterministic: bool) -> Items:
    streams = [model(p) for p in pipelines]
    width = len(streams)
    nothing = object()

    def each(epoch: int) -> Iterator[Any]:
        passes = [epoch if stop == "first_exhausted" else epoch << 32] * width
        walks = [s(p) for s, p in builtins.zip(streams, passes, strict=True)]
        over = set() if callable(weights) else {i for i in range(width) if not weights[i]}
        taken = [0] * width
        for t in counting():
            now = weights(t) if callable(weights) else weights
            draw = hashed(derive(seed or 0, "mix", epoch), t)
            i = chairman(now, taken, t) if deterministic else roulette(now, draw)
            item = next(walks[i], nothing)
            if item is nothing:
                over.add(i)
                if stop == "first_exhausted" or (stop == "all_exhausted" and len(over) == width):
                    return
                passes[i] += 1
                walks[i] = streams[i](passes[i])
                item = next(walks[i])
            taken[i] += 1
            yield item

    return each


def roulette(weights: Any, draw: int) -> int:
    sums = list(accumulate(builtins.map(Fraction, weights)))
    return next(i for i, each in builtins.enumerate(sums) if draw * sums[-1] < each * 2**64)


def chairman(weights: Any, taken: list[int], t: int) -> int:
    """Of those that lag enough, the one that can wait for the fewest turns."""
    if len(taken) == 1:
        return 0
    total = sum(builtins.map(Fraction, weights))
    shares = [(Fraction(w) / total).limit_denominator(1 << 16) for w in weights]
    least = Fraction(1, 2 * len(taken) - 2)
    lags = [share * (t + 1) - n for share, n in builtins.zip(shares, taken, strict=True)]
    waits = {
        i: math.floor((1 - least - lag) / shares[i])
        for i, lag in builtins.enumerate(lags)
        if lag >= least
    }
    return min(waits, key=waits.__getitem__)


def multiplex(control: Chain, pipelines: Any) -> Items:
    streams = [model(p) for p in pipelines]

    def each(epoch: int) -> Iterator[Any]:
        walks = [s(epoch) for s in streams]
        return (next(walks[i]) for i in model(control)(epoch))

    return each


MODELS: dict[str, Callable[..., Items]] = {
    f.__name__: f
    for f in (
        source, columns, map, filter, flat_map, unbatch, scan, take, skip, batch,
        shuffle, block_shuffle, repeat, shard, zip, concat, interleave,
        interleave_map,        mix, multiplex,
    )
}  # fmt: skip
