"""What the stages mean that pick, group and order items: models for the law *meaning*."""

from __future__ import annotations

import builtins
import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from hashlib import blake2b
from typing import Any

import numpy as np
import toolz

from lazyckpt.combinators.bounded_order import Grid
from lazyckpt.core.flow import BlockStarts
from lazyckpt.core.prng import Permutation, derive, hashed

Items = Callable[[int], Iterator[Any]]

_MOST = 1 << 13  # items that a shuffle within a buffer is modelled for; what is longer is endless


def filter(items: Items, predicate: Any) -> Items:
    return lambda epoch: (x for x in items(epoch) if predicate(x))


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


def split_batch(items: Items, n: int) -> Items:
    def split(batch: list[Any]) -> list[list[Any]]:
        sizes = [len(batch[device::n]) for device in range(n)]
        return [batch[sum(sizes[:i]) : sum(sizes[: i + 1])] for i in range(n)]

    return lambda epoch: (split(each) for each in items(epoch))


def shard_batch(items: Items, num_shards: int, index: int, key: Any) -> Items:
    def part(batch: list[Any]) -> list[Any]:
        parts: list[list[int]] = [[] for _ in range(num_shards)]
        for place in sorted(range(len(batch)), key=lambda place: -key(batch[place])):
            least = min(parts, key=lambda some: (sum(key(batch[i]) for i in some), len(some)))
            least.append(place)
        return [batch[place] for place in sorted(parts[index])]

    return lambda epoch: map(part, items(epoch))


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
        for number, window in enumerate(toolz.partition_all(window_size, items(epoch))):
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
        for n, x in enumerate(items(epoch)):
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
    ids = [i for i, part in enumerate(segments, 1) for _ in part]
    places = [i for part in segments for i in range(len(part))]
    rest = [0] * (length - len(tokens))
    row["segment_ids"] = np.array(ids + rest, np.int32)
    row["positions"] = np.array(places + rest, np.int32)
    return row


def _tokens(item: Any) -> list[dict[str, Any]]:
    features = item if isinstance(item, dict) else {"tokens": item}
    columns = [list(np.asarray(values)) for values in features.values()]
    return [dict(zip(features, row, strict=True)) for row in zip(*columns, strict=True)]


def concat_then_split(items: Items, length: int, drop_last: bool) -> Items:
    split = toolz.partition if drop_last else toolz.partition_all

    def each(epoch: int) -> Iterator[Any]:
        tagged = [(i, t) for i, x in enumerate(items(epoch)) for t in _tokens(x)]
        for part in split(length, tagged):
            runs = toolz.partitionby(toolz.first, part)
            yield _row([[token for _, token in run] for run in runs], length)

    return each


def pack_first_fit(items: Items, length: int, num_bins: int) -> Items:
    def each(epoch: int) -> Iterator[Any]:
        bins: list[list[list[dict[str, Any]]]] = [[] for _ in range(num_bins)]
        for segment in builtins.filter(None, map(_tokens, items(epoch))):
            for held in bins:
                if sum(map(len, held)) + len(segment) <= length:
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


def token_batch(
    items: Items,
    max_tokens: int,
    key: Any,
    pad_to_multiple_of: int,
    max_items: int | None,
    drop_longer: bool,
) -> Items:
    def width(batch: list[Any]) -> int:
        return -(-int(max(map(key, batch))) // pad_to_multiple_of) * pad_to_multiple_of

    def each(epoch: int) -> Iterator[Any]:
        batch: list[Any] = []
        for item in items(epoch):
            if drop_longer and width([item]) > max_tokens:
                continue
            more = [*batch, item]
            if width(more) * len(more) > max_tokens or len(batch) == max_items:
                yield batch
                more = [item]
            batch = more
        if batch:
            yield batch

    return each


def dedupe(items: Items, key: Any, window: int) -> Items:
    def each(epoch: int) -> Iterator[Any]:
        seen: list[Any] = []
        for item in items(epoch):
            if key(item) not in seen[-window:]:
                yield item
            seen.append(key(item))

    return each


def limit(items: Items, tokens: int, key: Any) -> Items:
    def each(epoch: int) -> Iterator[Any]:
        given = 0
        for item in items(epoch):
            given += key(item)
            if given > tokens:
                return
            yield item

    return each


def hash_range(
    items: Items, start: float, stop: float, seed: int, by: Any, inverted: bool
) -> Items:
    key = derive(seed, "hash_range")

    def share(number: int, item: Any) -> float:
        if by is None:
            return hashed(key, number) / 2**64
        told = b"s" + by(item).encode()
        digest = blake2b(told, digest_size=8, key=key.to_bytes(8, "little")).digest()
        return int.from_bytes(digest, "little") / 2**64

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


def balanced(
    items: Items, labels: Any, seed: int, num_samples: int | None, name: str = "balanced"
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
        return balanced(items, labels, seed, most, "oversample")(epoch)

    return each


def repeat(items: Items, count: int | None) -> Items:
    def epochs(epoch: int) -> Iterable[int]:
        return (
            itertools.count(epoch << 32)
            if count is None
            else range(epoch * count, (epoch + 1) * count)
        )

    return lambda epoch: toolz.mapcat(items, epochs(epoch))


def shard(items: Items, num_shards: int, index: int, contiguous: bool, remainder: Any) -> Items:
    def hand(epoch: int) -> list[Any]:
        every = list(toolz.take(10_000, items(epoch)))
        whole = len(every) // num_shards * num_shards
        if remainder == "drop":
            every = every[:whole]
        if remainder == "pad" and whole < len(every):
            every = list(toolz.take(whole + num_shards, toolz.concat([every] * (num_shards + 1))))
        if not contiguous:
            return every[index::num_shards]
        hands = [len(every[rank::num_shards]) for rank in range(num_shards)]
        return every[sum(hands[:index]) : sum(hands[: index + 1])]

    return lambda epoch: iter(hand(epoch))


ARRANGING: dict[str, Callable[..., Items]] = {
    f.__name__: f
    for f in (
        shard_batch, token_batch, dedupe, limit, hash_range, sample, balanced, oversample,
        filter, take, skip, take_while, drop_while, gather,
        batch, sliding_window, group_by, split_batch, bucket_batch, bucket_by_boundaries,
        concat_then_split, pack_first_fit, shuffle, block_shuffle, local_shuffle, repeat, shard,
    )
}  # fmt: skip
