"""Naive models of all combinators, for the law *meaning*.

A stream is a function from an epoch to an iterator. A model makes a stream from the streams before
it and the combinator's arguments.
"""

from __future__ import annotations

import builtins
import itertools
import math
import operator
from collections.abc import Callable, Iterator
from copy import deepcopy
from fractions import Fraction
from importlib import import_module
from itertools import accumulate
from itertools import count as counting
from typing import Any

import numpy as np
import toolz

from lazyckpt.combinators.machines.schedules import known_weights
from lazyckpt.core.call import Chain
from lazyckpt.core.machine import Machine, Share
from lazyckpt.core.prng import derive, hashed
from lazyckpt.testing.arranging import ARRANGING
from lazyckpt.testing.grouping import GROUPING, Items


def model(pipeline: Chain) -> Items:
    """Return the model of a pipeline of modelled combinators."""
    first, *rest = pipeline.calls
    items: Items = MODELS[first.name](**first.arguments)
    for call, before in builtins.zip(rest, pipeline.machines, strict=False):
        items = MODELS[call.name](items, **call.arguments, **_known(call.name, before))
    return items


def _known(name: str, before: Machine[Any]) -> dict[str, Any]:
    """Return the facts about the upstream machine that a model needs."""
    if name == "random_map":
        return {"share": before.share}
    return {"blocks": before.view and before.view.block_starts} if name == "local_shuffle" else {}


def source(data: Any, name: str | None) -> Items:
    return lambda epoch: iter(list(data))


def columns(arrays: dict[str, Any]) -> Items:
    rows = builtins.zip(*arrays.values(), strict=True)
    table = [dict(builtins.zip(arrays, row, strict=True)) for row in rows]
    return lambda epoch: iter(table)


def unfold(step: Any, init: Any) -> Items:
    def each(epoch: int) -> Iterator[Any]:
        found = step(deepcopy(init))
        while found is not None:
            state, item = deepcopy(found[0]), found[1]
            yield item
            found = step(state)

    return each


def count(start: int, step: int) -> Items:
    return lambda epoch: (start + number * step for number in counting())


def random_floats(seed: int) -> Items:
    return lambda epoch: (bits / 2**53 for bits in _bits("random_floats", seed, epoch))


def random_indices(weights: Any, seed: int) -> Items:
    largest = max(weights)
    sums = list(toolz.accumulate(operator.add, [weight / largest for weight in weights]))

    def each(epoch: int) -> Iterator[int]:
        for bits in _bits("random_indices", seed, epoch):
            edges = [int(each / sums[-1] * 2**53) for each in sums]
            yield next(i for i, edge in builtins.enumerate(edges) if bits < edge)

    return each


def _bits(name: str, seed: int, epoch: int) -> Iterator[int]:
    begin = derive(seed, name, epoch) // 4
    return (hashed(derive(seed, name), begin + n) // 2**11 for n in counting())


def from_generator(fn: Any, args: Any) -> Items:
    return lambda epoch: iter(fn(*args))


def once(value: Any) -> Items:
    return lambda epoch: iter([value])


def map(items: Items, fn: Any, args: Any, vectorized: bool) -> Items:
    if vectorized:
        return lambda epoch: (fn(*args, np.array([x]))[0] for x in items(epoch))
    return lambda epoch: (fn(*args, x) for x in items(epoch))


def starmap(items: Items, fn: Any) -> Items:
    return lambda epoch: itertools.starmap(fn, items(epoch))


def tap(items: Items, fn: Any) -> Items:
    return lambda epoch: (toolz.do(fn, x) for x in items(epoch))


def enumerate(items: Items, start: int) -> Items:
    return lambda epoch: builtins.enumerate(items(epoch), start)


def random_map(items: Items, fn: Any, seed: int, generator: str, share: Share) -> Items:
    def each(epoch: int) -> Iterator[Any]:
        key = derive(seed, "random_map", epoch)
        for n, x in builtins.enumerate(items(epoch)):
            number = share.first + n * share.every
            if generator == "torch":
                made = import_module("torch").Generator().manual_seed(hashed(key, 3 * number) >> 1)
                yield fn(made, x)
                continue
            bits = np.random.SFC64(0)
            words = [hashed(key, 3 * number + i) for i in range(3)]
            bits.state = {**bits.state, "state": {"state": np.array([*words, 1], np.uint64)}}
            yield fn(np.random.Generator(bits), x)

    return each


def lru_cache(items: Items, size: int) -> Items:
    return items


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
            state, output = step(deepcopy(state), x)
            yield output

    return each


def flat_scan(items: Items, step: Any, init: Any, flush: Any) -> Items:
    def each(epoch: int) -> Iterator[Any]:
        state = deepcopy(init)
        for x in items(epoch):
            state, outputs = step(deepcopy(state), x)
            yield from expanded(outputs, epoch)
        if flush is not None:
            yield from expanded(flush(state), epoch)

    return each


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


def lanes(pipelines: tuple[Chain, ...], num_shards: int, index: int) -> Items:
    return interleave(pipelines[index::num_shards], 1)


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
        restarts = stop in ("all_exhausted", "never")
        passes, begin = [epoch << 32 if restarts else epoch] * width, 0
        walks = [s(p) for s, p in builtins.zip(streams, passes, strict=True)]
        rows = known_weights(weights)
        over = {i for i in range(width) if rows and not any(row[i] for row in rows)}
        taken, points = [0] * width, {*dict(getattr(weights, "points", ()))}
        for t in counting():
            now = weights(t) if callable(weights) else weights
            if deterministic and t in points:  # proportions start again
                begin, taken = t, [0] * width
            draw = hashed(derive(seed or 0, "mix", epoch), t)
            if not restarts:
                now = [0 if n in over else weight for n, weight in builtins.enumerate(now)]
            i = chairman(now, taken, t - begin) if deterministic else roulette(now, draw)
            item = next(walks[i], nothing)
            while item is nothing:
                over.add(i)
                if stop == "first_exhausted" or (stop != "never" and len(over) == width):
                    return
                if restarts:
                    passes[i] += 1
                    walks[i] = streams[i](passes[i])
                else:
                    i = roulette([0 if n in over else w for n, w in builtins.enumerate(now)], draw)
                item = next(walks[i], nothing)
            taken[i] += 1
            yield item

    return each


def roulette(weights: Any, draw: int) -> int:
    sums = list(accumulate(builtins.map(Fraction, weights)))
    return next(i for i, each in builtins.enumerate(sums) if draw * sums[-1] < each * 2**64)


def chairman(weights: Any, taken: list[int], t: int) -> int:
    """Return the most urgent of those that lag enough: the one that can wait least."""
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


MODELS: dict[str, Callable[..., Items]] = ARRANGING | GROUPING | {
    f.__name__: f
    for f in (
        source, columns, unfold, count, random_floats, random_indices, from_generator, once,
        map, starmap, tap, enumerate, random_map, lru_cache, flat_map, unbatch, scan, flat_scan,
        zip, concat, case, switch, interleave, lanes, interleave_map, mix, multiplex,
    )
}  # fmt: skip
