"""What each combinator means, as naively as it can be said: the models of the law *meaning*.

A stream is a function from an epoch to an iterator; a model makes a stream of
the streams before it and the combinator's arguments.
"""

from __future__ import annotations

import builtins
import itertools
import math
import operator
from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from fractions import Fraction
from functools import partial
from itertools import accumulate
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


def transition(items: Items, step: Any, init: Any, flush: Any) -> Items:
    def each(epoch: int) -> Iterator[Any]:
        state = deepcopy(init)
        for x in items(epoch):
            state, outputs = step(state, x)
            yield from expanded(outputs, epoch)
        if flush is not None:
            yield from expanded(flush(state), epoch)

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


def batch(items: Items, batch_size: int, drop_last: bool, collate: Any, pad: Any) -> Items:
    split = toolz.partition if drop_last else toolz.partition_all
    if pad is not None:
        split = partial(toolz.partition, pad=pad)
    finish = collate or toolz.identity
    return lambda epoch: (finish(list(part)) for part in split(batch_size, items(epoch)))


def sliding_window(items: Items, width: int, stride: int) -> Items:
    def each(epoch: int) -> Iterator[Any]:
        every = list(items(epoch))
        return (tuple(every[i : i + width]) for i in range(0, len(every) - width + 1, stride))

    return each


def group_by(items: Items, key: Any) -> Items:
    return lambda epoch: ((key(run[0]), list(run)) for run in toolz.partitionby(key, items(epoch)))


def shards(items: Items, n: int) -> Items:
    def split(batch: list[Any]) -> list[list[Any]]:
        sizes = [len(batch[device::n]) for device in range(n)]
        return [batch[sum(sizes[:i]) : sum(sizes[: i + 1])] for i in range(n)]

    return lambda epoch: (split(each) for each in items(epoch))


def bucket_batch(
    items: Items,
    batch_size: Any,
    key: Any,
    window_size: int,
    boundary_key: Any,
    shuffle: bool,
    seed: Any,
) -> Items:
    def cut(window: list[Any]) -> Iterator[list[Any]]:
        batch: list[Any] = []
        room = 0
        for x in window:
            differs = boundary_key and batch and boundary_key(batch[-1]) != boundary_key(x)
            if batch and (not room or differs):
                yield batch
                batch = []
            if not batch:
                room = batch_size(x) if callable(batch_size) else batch_size
            batch.append(x)
            room -= 1
        yield batch

    def each(epoch: int) -> Iterator[Any]:
        for number, window in builtins.enumerate(toolz.partition_all(window_size, items(epoch))):
            lengths = toolz.groupby(key or (lambda x: 0), window)
            longest_first = toolz.concat(lengths[k] for k in sorted(lengths, reverse=True))
            batches = list(cut(list(longest_first)))
            order: Any = range(len(batches))
            if shuffle:
                order = Permutation(derive(seed, "bucket_batch", epoch, number), len(batches))
            yield from (batches[order[i]] for i in range(len(batches)))

    return each


def bucket_by_boundaries(
    items: Items,
    boundaries: Any,
    batch_size: Any,
    length: Any,
    drop_last: bool,
    max_wait: int | None,
) -> Items:
    sizes = batch_size if isinstance(batch_size, tuple) else [batch_size] * (len(boundaries) + 1)

    def each(epoch: int) -> Iterator[Any]:
        waiting: list[list[Any]] = [[] for _ in sizes]  # (block of half, item)
        for n, x in builtins.enumerate(items(epoch)):
            half = max_wait // 2 if max_wait else n + 2
            place = sum(length(x) >= bound for bound in boundaries)
            waiting[place].append((n // half, x))
            if len(waiting[place]) == sizes[place]:
                yield [x for _, x in waiting[place]]
                waiting[place].clear()
            for bucket in waiting:
                if (n + 1) % half == 0 and bucket and bucket[0][0] + 2 <= (n + 1) // half:
                    yield [x for _, x in bucket]
                    bucket.clear()
        yield from ([x for _, x in bucket] for bucket in waiting if bucket and not drop_last)

    return each


def _row(segments: list[list[dict[str, Any]]], length: int) -> dict[str, Any]:
    tokens = list(toolz.concat(segments))
    row = {}
    for name in tokens[0]:
        values = np.array([token[name] for token in tokens])
        padding = [(0, length - len(tokens))] + [(0, 0)] * (values.ndim - 1)
        row[name] = np.pad(values, padding)
    ids = [i for i, part in builtins.enumerate(segments, 1) for _ in part]
    places = [i for part in segments for i in range(len(part))]
    rest = [0] * (length - len(tokens))
    row["segment_ids"] = np.array(ids + rest, np.int32)
    row["positions"] = np.array(places + rest, np.int32)
    return row


def _tokens(item: Any) -> list[dict[str, Any]]:
    features = item if isinstance(item, dict) else {"tokens": item}
    columns = [list(np.asarray(values)) for values in features.values()]
    return [
        dict(builtins.zip(features, row, strict=True))
        for row in builtins.zip(*columns, strict=True)
    ]


def concat_then_split(items: Items, length: int, drop_last: bool) -> Items:
    split = toolz.partition if drop_last else toolz.partition_all

    def each(epoch: int) -> Iterator[Any]:
        tagged = [(i, t) for i, x in builtins.enumerate(items(epoch)) for t in _tokens(x)]
        for part in split(length, tagged):
            runs = toolz.partitionby(toolz.first, part)
            yield _row([[token for _, token in run] for run in runs], length)

    return each


def pack_first_fit(items: Items, length: int, num_bins: int) -> Items:
    def each(epoch: int) -> Iterator[Any]:
        bins: list[list[list[dict[str, Any]]]] = [[] for _ in range(num_bins)]
        for segment in builtins.filter(None, builtins.map(_tokens, items(epoch))):
            for held in bins:
                if sum(builtins.map(len, held)) + len(segment) <= length:
                    held.append(segment)
                    break
            else:
                yield from (_row(held, length) for held in bins)
                bins = [[segment]] + [[] for _ in range(num_bins - 1)]
        yield from (_row(held, length) for held in bins if held)

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


def case(selector: Chain, pipelines: tuple[Chain, ...]) -> Items:
    rows = zip((selector, *pipelines), strict=False)
    return lambda epoch: (row[1:][row[0]] for row in rows(epoch))


def switch(condition: Chain, if_true: Chain, if_false: Chain) -> Items:
    rows = zip((condition, if_true, if_false), strict=False)
    return lambda epoch: (yes if told else no for told, yes, no in rows(epoch))


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
        shuffle, block_shuffle, repeat, shard, zip, concat,
        sliding_window, group_by, shards, bucket_batch, bucket_by_boundaries,
        concat_then_split, pack_first_fit,
        unfold, count, uniform, choices, once, starmap, tap, enumerate, random_map,
        cache, transition, take_while, drop_while, gather, case, switch,
        shuffle, block_shuffle, repeat, shard, zip, concat, interleave,
        interleave_map,        mix, multiplex,
    )
}  # fmt: skip
