"""Models of the combinators that select items or reorder them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from typing import Any

import toolz

from lazyckpt.combinators.machines.buffered_shuffle import Grid
from lazyckpt.core.flow import BlockStarts
from lazyckpt.core.prng import Permutation, derive, hashed
from lazyckpt.testing.grouping import Items

_MOST = 1 << 13  # items for which a buffered shuffle is modelled; a longer stream counts as endless


def filter(items: Items, predicate: Any, args: Any) -> Items:
    return lambda epoch: (x for x in items(epoch) if predicate(*args, x))


def take(items: Items, n: int) -> Items:
    return lambda epoch: toolz.take(n, items(epoch))


def skip(items: Items, n: int) -> Items:
    return lambda epoch: toolz.drop(n, items(epoch))


def exclude(items: Items, ranges: Any) -> Items:
    gone = {n for start, stop in ranges for n in range(start, stop)}
    return lambda epoch: (x for n, x in enumerate(items(epoch)) if n not in gone)


def take_while(items: Items, predicate: Any, args: Any) -> Items:
    return lambda epoch: itertools.takewhile(lambda x: predicate(*args, x), items(epoch))


def drop_while(items: Items, predicate: Any) -> Items:
    return lambda epoch: itertools.dropwhile(predicate, items(epoch))


def dedupe(items: Items, key: Any, window: int) -> Items:
    def each(epoch: int) -> Iterator[Any]:
        seen: list[Any] = []
        for item in items(epoch):
            if key(item) not in seen[-window:]:
                yield item
            seen.append(key(item))

    return each


def dedupe_bloom(
    items: Items,
    key: Any,
    folder: str,
    capacity: int,
    false_positive_rate: float,
    block_size: int,
) -> Items:
    return lambda epoch: toolz.unique(items(epoch), key)  # without false positives


def take_tokens(items: Items, tokens: int, key: Any) -> Items:
    def each(epoch: int) -> Iterator[Any]:
        given = 0
        for item in items(epoch):
            given += key(item)
            if given > tokens:
                return
            yield item

    return each


def gather(items: Items, indices: Any) -> Items:
    def each(epoch: int) -> Iterator[Any]:
        every = list(items(epoch))
        return (every[i] for i in indices)

    return each


def hash_range(
    items: Items, start: float, stop: float, seed: int, key: Any, inverted: bool
) -> Items:
    salt = derive(seed, "hash_range")

    def share(number: int, item: Any) -> float:
        if key is None:
            return hashed(salt, number) / 2**64
        digest = blake2b(b"s" + key(item).encode(), digest_size=8).digest()
        return hashed(salt, int.from_bytes(digest, "little")) / 2**64

    def each(epoch: int) -> Iterator[Any]:
        for number, item in enumerate(items(epoch)):
            if (start <= share(number, item) < stop) != inverted:
                yield item

    return each


def sample(
    items: Items, weights: Any, seed: int, replacement: bool, num_samples: int | None
) -> Items:
    def each(epoch: int) -> Iterator[Any]:
        every = list(items(epoch))
        key = derive(seed, "sample", epoch)
        if not replacement:
            uniform = [(hashed(key, i) // 2**11 + 1) / 2**53 for i in range(len(every))]
            keyed = sorted(
                (-math.log(u) / weights[i], i) for i, u in enumerate(uniform) if weights[i]
            )
            yield from (every[i] for _, i in keyed[:num_samples])
            return
        sums = list(itertools.accumulate(weight / max(weights) for weight in weights))
        edges = [int(each / sums[-1] * 2**53) for each in sums]
        for number in range(num_samples or len(every)):
            bits = hashed(key, number) // 2**11
            yield every[next(i for i, edge in enumerate(edges) if bits < edge)]

    return each


def sample_balanced(
    items: Items, labels: Any, seed: int, num_samples: int | None, name: str = "sample_balanced"
) -> Items:
    def each(epoch: int) -> Iterator[Any]:
        every = list(items(epoch))
        classes = list(toolz.groupby(lambda i: labels[i], range(len(every))).values())
        turns = derive(seed, name, "turns", epoch)
        number = 0
        for turn in itertools.count() if every else ():
            keyed = [(hashed(turns, turn * len(classes) + c), c) for c in range(len(classes))]
            for _, c in sorted(keyed):
                if number == (len(every) if num_samples is None else num_samples):
                    return
                size = len(classes[c])
                order = Permutation(derive(seed, name, epoch, c, turn // size), size)
                yield every[classes[c][order[turn % size]]]
                number += 1

    return each


def oversample(items: Items, labels: Any, seed: int) -> Items:
    def each(epoch: int) -> Iterator[Any]:
        sizes = toolz.frequencies(labels).values()
        most = len(sizes) * max(sizes, default=0)
        return sample_balanced(items, labels, seed, most, "oversample")(epoch)

    return each


def shuffle(items: Items, buffer_size: int | None, seed: int) -> Items:
    def whole(epoch: int) -> Iterator[Any]:
        every = list(items(epoch))
        order = Permutation(derive(seed, "shuffle", epoch), max(1, len(every)))
        return (every[order[i]] for i in range(len(every)))

    def within_buffer(epoch: int) -> Iterator[Any]:
        assert buffer_size is not None
        every = list(itertools.islice(items(epoch), _MOST))
        return (every[i] for i in _bounded(len(every), Grid.of(buffer_size), seed, epoch))

    return whole if buffer_size is None else within_buffer


def _bounded(length: int, grid: Grid, seed: int, epoch: int) -> list[int]:
    if length < grid.reach:
        order = Permutation(derive(seed, "shuffle", "buffer", epoch), max(1, length))
        return [order[i] for i in range(length)]
    chunk, stratum = grid.chunk, grid.width // grid.chunk
    tag = (1 << chunk.bit_length()) - 1
    first, second = (derive(seed, "shuffle", part, epoch) for part in ("order", "offset"))
    keyed = []
    for begin in range(0, length, chunk):
        tagged = sorted(hashed(first, begin + i) & ~tag | i for i in range(chunk))
        for place, item in enumerate(begin + (each & tag) for each in tagged):
            random = hashed(second, begin + place)
            offset = place * stratum + ((random >> 32) * stratum >> 32)
            key = begin - grid.width // 2 + offset
            key = -1 - key if key < 0 else key
            if length < _MOST and key >= length:
                key = 2 * length - 1 - key
            if item < length:
                keyed.append((key, random & 1023, item))
    shown = length if length < _MOST else length - grid.reach
    return [item for _, _, item in sorted(keyed)][:shown]


def block_shuffle(items: Items, block_size: int, seed: int) -> Items:
    def each(epoch: int) -> Iterator[Any]:
        for number, block in enumerate(toolz.partition_all(block_size, items(epoch))):
            order = Permutation(derive(seed, "block_shuffle", epoch, number), len(block))
            yield from (block[order[i]] for i in range(len(block)))

    return each


def local_shuffle(
    items: Items, window: int, seed: int, block_size: int | None, blocks: BlockStarts | None
) -> Items:
    def each(epoch: int) -> Iterator[Any]:
        every = list(items(epoch))
        starts = blocks() if blocks and not block_size else range(0, len(every), block_size or 1)
        edges = sorted({0, *(int(start) for start in starts if start > 0)})
        parts = [every[i:j] for i, j in itertools.zip_longest(edges, edges[1:]) if every[i:j]]
        order = Permutation(derive(seed, "local_shuffle", "blocks", epoch, 0), max(1, len(parts)))
        shuffled = [parts[order[i]] for i in range(len(parts))]
        for number, some in enumerate(toolz.partition_all(window, shuffled)):
            rows = list(toolz.concat(some))
            within = Permutation(derive(seed, "local_shuffle", epoch, number), len(rows))
            yield from (rows[within[i]] for i in range(len(rows)))

    return each


def repeat(items: Items, count: int | None) -> Items:
    def epochs(epoch: int) -> Iterable[int]:
        return (
            itertools.count(epoch << 32)
            if count is None
            else range(epoch * count, (epoch + 1) * count)
        )

    return lambda epoch: toolz.mapcat(items, epochs(epoch))


def shard(
    items: Items, num_shards: int, index: int, contiguous: bool, remainder: Any, pad: Any
) -> Items:
    def hand(epoch: int) -> list[Any]:
        every = list(toolz.take(10_000, items(epoch)))
        whole = len(every) // num_shards * num_shards
        if remainder == "drop":
            every = every[:whole]
        if remainder == "pad" and whole < len(every):
            every += [pad] * (whole + num_shards - len(every))
        if remainder == "repeat" and whole < len(every):
            every = list(toolz.take(whole + num_shards, toolz.concat([every] * (num_shards + 1))))
        if not contiguous:
            return every[index::num_shards]
        hands = [len(every[rank::num_shards]) for rank in range(num_shards)]
        return every[sum(hands[:index]) : sum(hands[: index + 1])]

    return lambda epoch: iter(hand(epoch))


ARRANGING: dict[str, Callable[..., Items]] = {
    f.__name__: f
    for f in (
        filter,
        take,
        skip,
        exclude,
        take_while,
        drop_while,
        dedupe,
        dedupe_bloom,
        take_tokens,
        gather,
        hash_range,
        sample,
        sample_balanced,
        oversample,
        shuffle,
        block_shuffle,
        local_shuffle,
        repeat,
        shard,
    )
}
