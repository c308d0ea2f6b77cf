"""Models of the combinators that combine several items: batches, windows, groups, packed rows."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import toolz

from lazyckpt.core.prng import Permutation, derive

Items = Callable[[int], Iterator[Any]]


def batch(items: Items, batch_size: int, drop_last: bool, collate: Any, pad: Any) -> Items:
    split = toolz.partition if drop_last else toolz.partition_all
    if pad is not None:
        split = partial(toolz.partition, pad=pad)
    finish = collate or toolz.identity
    return lambda epoch: (finish(list(part)) for part in split(batch_size, items(epoch)))


def sliding_window(items: Items, width: int, stride: int) -> Items:
    return lambda epoch: toolz.take_nth(stride, toolz.sliding_window(width, items(epoch)))


def group_by(items: Items, key: Any) -> Items:
    return lambda epoch: ((key(run[0]), list(run)) for run in toolz.partitionby(key, items(epoch)))


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
    key: Any,
    drop_last: bool,
    max_wait: int | None,
) -> Items:
    sizes = batch_size if isinstance(batch_size, tuple) else [batch_size] * (len(boundaries) + 1)

    def each(epoch: int) -> Iterator[Any]:
        waiting: list[list[Any]] = [[] for _ in sizes]  # (block of half, item)
        for n, x in enumerate(items(epoch)):
            half = max_wait // 2 if max_wait else n + 2
            place = sum(key(x) >= bound for bound in boundaries)
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


def _row(segments: list[list[dict[str, Any]]], length: int, pad: Any) -> dict[str, Any]:
    tokens = list(toolz.concat(segments))
    row = {}
    for name in tokens[0]:
        values = np.array([token[name] for token in tokens])
        padding = [(0, length - len(tokens))] + [(0, 0)] * (values.ndim - 1)
        row[name] = np.pad(values, padding, constant_values=(pad or {}).get(name, 0))
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


def concat_then_split(items: Items, length: Any, drop_last: bool, pad: Any) -> Items:
    def each(epoch: int) -> Iterator[Any]:
        tagged = [(i, t) for i, x in enumerate(items(epoch)) for t in _tokens(x)]
        for number in itertools.count():
            size = _length(length, number)
            part, tagged = tagged[:size], tagged[size:]
            if not part or (drop_last and len(part) < size):
                return
            runs = toolz.partitionby(toolz.first, part)
            yield _row([[token for _, token in run] for run in runs], size, pad)

    return each


def _length(length: Any, rows: int) -> int:
    return int(length(rows)) if callable(length) else int(length)


def _fitting(tokens: list[Any], length: int, overflow: str) -> list[list[Any]]:
    if len(tokens) > length:
        assert overflow != "error"
        kept = {"split": tokens, "truncate": tokens[:length], "drop": []}
        tokens = kept[overflow]
    return list(map(list, toolz.partition_all(length, tokens)))


def _binned(prefer: Callable[[int], int]) -> Callable[..., Items]:
    """Return a model of packing: a sequence goes into the preferred row among those with room."""

    def placed(bins: list[Any], tokens: list[Any], size: int, most: float, overflow: str) -> bool:
        parts = _fitting(tokens, size, overflow)
        if not parts:
            return True
        rooms = [size - sum(map(len, held)) for held in bins]
        fits = [n for n, room in enumerate(rooms) if room >= len(parts[-1])]
        needed = len(parts) - bool(fits)
        if needed and bins and len(bins) + needed > most:
            return False
        bins += [[part] for part in parts[:-1]]
        if not fits:
            fits, rooms = [len(bins)], [*rooms, *[0] * len(parts)]
            bins.append([])
        bins[min(fits, key=lambda n: prefer(rooms[n]))].append(parts[-1])
        return True

    def model(items: Items, length: Any, num_bins: int, overflow: str, pad: Any) -> Items:
        def each(epoch: int) -> Iterator[Any]:
            stream: Iterator[list[Any]] = map(_tokens, items(epoch))
            number, is_more = 0, True
            held: list[Any] = []  # sequences of rows that a change of length ended
            while held or is_more:
                size = _length(length, number)
                bins: list[Any] = []
                for tokens in held:
                    placed(bins, tokens, size, math.inf, overflow)
                is_more = False
                for tokens in stream:
                    if not placed(bins, tokens, size, num_bins, overflow):
                        stream, is_more = itertools.chain([tokens], stream), True
                        break
                while bins and _length(length, number) == size:
                    yield _row(bins.pop(0), size, pad)
                    number += 1
                held = [part for parts in bins for part in parts]

        return each

    return model


def pack_by_plan(items: Items, plan: Any, pad: Any) -> Items:
    def each(epoch: int) -> Iterator[Any]:
        documents = [_tokens(item) for item in items(epoch)]
        for row in plan:
            yield _row([documents[n][start:stop] for n, start, stop in row], plan.length, pad)

    return each


GROUPING: dict[str, Callable[..., Items]] = {
    f.__name__: f
    for f in (
        batch,
        sliding_window,
        group_by,
        token_batch,
        split_batch,
        shard_batch,
        bucket_batch,
        bucket_by_boundaries,
        concat_then_split,
        pack_by_plan,
    )
}
GROUPING["pack_first_fit"] = _binned(lambda room: 0)
GROUPING["pack_best_fit"] = _binned(lambda room: room)
