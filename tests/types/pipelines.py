"""The types of pipelines, of every combinator: mypy and pyright both have to find them.

It also runs: the pipelines are built. An annotation in place of
`assert_type` is for a lambda, of which mypy knows more than pyright.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sized
from typing import TYPE_CHECKING, Any, assert_type

import numpy as np
from numpy.typing import NDArray

import lazyckpt as lz
from lazyckpt.core.machine import Machine, Rate
from lazyckpt.core.stages import passing, stateless

if TYPE_CHECKING:
    from lazyckpt.integrations.torch.loader import Loader

words = lz.source(["a b", "c"])
numbers = lz.source([0, 1])
pairs = lz.source([("a", 1)])


def read_lines(file: str) -> list[str]:
    return [file]


def tokenize(line: str) -> NDArray[np.int64]:
    return np.zeros(len(line), np.int64)


def longest(best: int, word: str) -> tuple[int, bytes]:
    return best, word.encode()


def several(best: int, word: str) -> tuple[int, list[bytes]]:
    return best, [word.encode()]


def written(number: int) -> tuple[int, str] | None:
    return (number + 1, str(number)) if number < 3 else None


def noisy(rng: np.random.Generator, word: str) -> float:
    return rng.random() + len(word)


def repeated(word: str, times: int) -> bytes:
    return word.encode() * times


def is_long(least: int, word: str) -> bool:
    return len(word) >= least


# Pipelines of the start page and the README.

lines = ["to be or not to be", "that is the question", "whether tis nobler"]
forever = lz.source(lines) | lz.shuffle(seed=0) | lz.repeat()
assert_type(forever, lz.Pipeline[str])
assert_type(forever | lz.flat_map(str.split) | lz.shuffle(8, seed=1), lz.Pipeline[str])
assert_type(forever | lz.flat_map(str.split) | lz.batch(4), lz.Pipeline[list[str]])
assert_type(next(lz.run(words | lz.batch(4))), list[str])
pair_sums = lz.batch(2) | lz.map(sum)
summed: lz.Pipeline[int] = [1, 2, 3] | pair_sums
summed = lz.source([1, 2, 3]) | pair_sums
assert_type([1, 2, 3] | lz.map(str) | lz.batch(2), lz.Pipeline[list[str]])
assert_type(
    lz.source(range(100)) | lz.repeat() | lz.shard(num_shards=2, index=0) | lz.batch(2),
    lz.Pipeline[list[int]],
)

# A pretraining's.

tokens = (
    lz.source(["a.txt"]) | lz.shuffle(seed=0) | lz.repeat() | lz.flat_map(read_lines)
) | lz.map(tokenize)
assert_type(tokens, lz.Pipeline[NDArray[np.int64]])
rows = tokens | lz.pack_first_fit(2048, num_bins=16) | lz.shard(num_shards=8, index=0)
assert_type(rows, lz.Pipeline[dict[str, NDArray[Any]]])
assert_type(rows | lz.batch(32, collate=lz.stack), lz.Pipeline[Any])
assert_type(
    lz.source(["a.txt"])
    | lz.shuffle(seed=0)
    | lz.repeat()
    | lz.flat_map(read_lines)
    | lz.map(tokenize)
    | lz.pack_first_fit(2048, num_bins=16)
    | lz.shard(num_shards=8, index=0)
    | lz.batch(32, collate=lz.stack),
    lz.Pipeline[Any],
)

# Sources.

assert_type(words, lz.Pipeline[str])
assert_type(lz.source(range(3)), lz.Pipeline[int])
assert_type(lz.columns(x=[1], y=np.ones(1)), lz.Pipeline[dict[str, Any]])
assert_type(lz.unfold(written, 0), lz.Pipeline[str])
assert_type(lz.once("a"), lz.Pipeline[str])
assert_type(lz.from_generator(lambda: iter(["a"])), lz.Pipeline[str])
assert_type(lz.count(), lz.Pipeline[int])
assert_type(lz.random_floats(seed=0), lz.Pipeline[float])
assert_type(lz.random_indices([1, 0.5], seed=0), lz.Pipeline[int])
assert_type(lz.random_indices(np.ones(2), seed=0), lz.Pipeline[int])

# One item in, another out.

assert_type(words | lz.map(len), lz.Pipeline[int])
assert_type(words | lz.map(is_long, 3), lz.Pipeline[bool])
assert_type(words | lz.map(str.split), lz.Pipeline[list[str]])
assert_type(words | lz.map(int), lz.Pipeline[int])
assert_type(lz.map(str.upper) | lz.map(len), lz.Stage[str, int])
assert_type(numbers | lz.batch(2) | lz.map(sum), lz.Pipeline[int])
assert_type(pairs | lz.starmap(repeated), lz.Pipeline[bytes])
assert_type(lz.zip(words, numbers) | lz.starmap(repeated), lz.Pipeline[bytes])
assert_type(words | lz.tap(print), lz.Pipeline[str])
assert_type(words | lz.enumerate(1), lz.Pipeline[tuple[int, str]])
assert_type(["a"] | lz.enumerate(1), lz.Pipeline[tuple[int, str]])
assert_type(words | lz.random_map(noisy, seed=0), lz.Pipeline[float])

# Several out, or none.

assert_type(words | lz.flat_map(str.split), lz.Pipeline[str])
assert_type(words | lz.interleave_map(str.split, cycle_length=2), lz.Pipeline[str])
assert_type(words | lz.batch(2) | lz.unbatch(), lz.Pipeline[str])
assert_type([["a"]] | lz.unbatch(), lz.Pipeline[str])
assert_type(words | lz.batch(2, collate=lz.stack) | lz.unbatch(), lz.Pipeline[Any])
assert_type(words | lz.scan(longest, 0), lz.Pipeline[bytes])
assert_type(words | lz.flat_scan(several, 0), lz.Pipeline[bytes])
assert_type(words | lz.filter(bool), lz.Pipeline[str])
assert_type(words | lz.filter(is_long, 3), lz.Pipeline[str])
assert_type(words | lz.take_while(str.isupper), lz.Pipeline[str])
assert_type(words | lz.take_while(is_long, 3), lz.Pipeline[str])
assert_type(words | lz.drop_while(str.isupper), lz.Pipeline[str])
assert_type(words | lz.dedupe(len, window=9), lz.Pipeline[str])
assert_type(
    words | lz.dedupe_bloom(str, "seen", capacity=9, false_positive_rate=0.1), lz.Pipeline[str]
)
assert_type(words | lz.take_tokens(9, key=len), lz.Pipeline[str])

# The same items, fewer of them, or in a different order.

assert_type([2, 3] | lz.take(2), lz.Pipeline[int])
assert_type(words | lz.skip(1), lz.Pipeline[str])
assert_type(words | lz.lru_cache(3), lz.Pipeline[str])
assert_type(words | lz.exclude([(0, 1), range(1, 2)]), lz.Pipeline[str])
assert_type(words | lz.exclude([(lz.init(words), lz.state_at(words, 2))]), lz.Pipeline[str])
assert_type(words | lz.gather([1, 0]), lz.Pipeline[str])
assert_type(words | lz.gather(np.arange(2)) | lz.gather(range(2)), lz.Pipeline[str])
assert_type(words | lz.shuffle(seed=0) | lz.shuffle(8, seed=0), lz.Pipeline[str])
assert_type(words | lz.block_shuffle(8, seed=0), lz.Pipeline[str])
assert_type(words | lz.local_shuffle(8, seed=0, block_size=9), lz.Pipeline[str])
assert_type(words | lz.repeat(2), lz.Pipeline[str])
assert_type(words | lz.shard(num_shards=2, index=0), lz.Pipeline[str])
assert_type(words | lz.hash_range(0, 1, seed=0), lz.Pipeline[str])
assert_type(words | lz.sample([1, 2], seed=0), lz.Pipeline[str])
assert_type(words | lz.sample_balanced([1, 2], seed=0), lz.Pipeline[str])
assert_type(words | lz.oversample([1, 2], seed=0), lz.Pipeline[str])
train, test = lz.split([0.75, 0.25], seed=0)
assert_type(words | train, lz.Pipeline[str])
assert_type(words | lz.split({"a": 0.75}, seed=0, key=str)["a"], lz.Pipeline[str])
assert_type(words | lz.kfold(2, seed=0)[0][0], lz.Pipeline[str])

# Several in, one out.

assert_type(words | lz.batch(2), lz.Pipeline[list[str]])
assert_type(["a"] | lz.batch(2), lz.Pipeline[list[str]])
assert_type(words | lz.batch(2) | lz.batch(2), lz.Pipeline[list[list[str]]])
assert_type(words | lz.batch(2, drop_last=True) | lz.map(len), lz.Pipeline[int])
assert_type(words | lz.batch(2, collate=len), lz.Pipeline[int])
assert_type(words | lz.sliding_window(2), lz.Pipeline[tuple[str, ...]])
assert_type(["a"] | lz.sliding_window(2), lz.Pipeline[tuple[str, ...]])
assert_type(words | lz.token_batch(9, key=len), lz.Pipeline[list[str]])
assert_type(words | lz.group_by(len), lz.Pipeline[tuple[int, list[str]]])
assert_type(words | lz.bucket_batch(2, key=len, window_size=9, seed=0), lz.Pipeline[list[str]])
assert_type(words | lz.bucket_by_boundaries([2], 2, key=len), lz.Pipeline[list[str]])
assert_type(words | lz.batch(2) | lz.split_batch(2), lz.Pipeline[list[list[str]]])
assert_type(
    words | lz.batch(2) | lz.shard_batch(num_shards=2, index=0, key=len), lz.Pipeline[list[str]]
)
assert_type([[1]] | lz.concat_then_split(2), lz.Pipeline[dict[str, NDArray[Any]]])
assert_type([[1]] | lz.pack_best_fit(2, num_bins=1), lz.Pipeline[dict[str, NDArray[Any]]])
assert_type([[1]] | lz.pack_first_fit(2, num_bins=1), lz.Pipeline[dict[str, NDArray[Any]]])
assert_type(
    [[1]] | lz.pack_by_plan(lz.plan_packing([1], 2, seed=0)), lz.Pipeline[dict[str, NDArray[Any]]]
)

# Pipelines joined.

assert_type(lz.zip(words), lz.Pipeline[tuple[str]])
assert_type(lz.zip(words, numbers), lz.Pipeline[tuple[str, int]])
assert_type(lz.zip(words, numbers, strict=True), lz.Pipeline[tuple[str, int]])
assert_type(lz.zip(words, numbers, pairs), lz.Pipeline[tuple[str, int, tuple[str, int]]])
assert_type(lz.zip(*[words, words]), lz.Pipeline[tuple[str, ...]])
assert_type(lz.concat(words, words), lz.Pipeline[str])
mixed: lz.Pipeline[object] = lz.concat(words, numbers)
assert_type(lz.case(numbers, words, words), lz.Pipeline[str])
assert_type(lz.switch(pairs, words, words), lz.Pipeline[str])
assert_type(lz.interleave(words, words), lz.Pipeline[str])
assert_type(lz.mix([words, words], [2, 0.5], seed=0), lz.Pipeline[str])
assert_type(lz.mix([words], lambda n: [n], seed=0), lz.Pipeline[str])
assert_type(lz.multiplex(numbers, [words, words]), lz.Pipeline[str])
assert_type(lz.lanes([words], num_shards=1, index=0), lz.Pipeline[str])

# Lambdas. Of one that chooses or measures, the items' type is known all the same.

listed: lz.Pipeline[list[str]] = words | lz.map(lambda word: [word])
upper: lz.Pipeline[str] = words | lz.map(lambda word: word.upper())
split: lz.Pipeline[str] = words | lz.flat_map(lambda line: line.split())
first: lz.Pipeline[str] = words | lz.batch(2, collate=lambda batch: batch[0])
assert_type(words | lz.tap(lambda word: print(word.upper())), lz.Pipeline[str])
assert_type(words | lz.filter(lambda word: word.isupper()), lz.Pipeline[str])
assert_type(words | lz.take_while(lambda word: word.isupper()), lz.Pipeline[str])
assert_type(words | lz.drop_while(lambda word: word.isupper()), lz.Pipeline[str])
assert_type(words | lz.dedupe(lambda word: word.upper(), window=9), lz.Pipeline[str])
assert_type(words | lz.group_by(lambda word: len(word)), lz.Pipeline[tuple[int, list[str]]])
assert_type(words | lz.token_batch(9, key=lambda word: len(word)), lz.Pipeline[list[str]])

# Stages without a source.

assert_type(lz.take(2) | lz.repeat() | lz.map(len), lz.Stage[Sized, int])
assert_type(lz.map(str.upper) | lz.shuffle(seed=0) | lz.repeat(), lz.Stage[str, str])
assert_type(lz.map(str.upper) | lz.filter(len), lz.Stage[str, str])
assert_type(lz.map(str.upper) | lz.batch(2), lz.Stage[str, list[str]])
assert_type(lz.map(str.upper) | lz.enumerate(), lz.Stage[str, tuple[int, str]])
assert_type(lz.map(str.upper) | lz.sliding_window(2), lz.Stage[str, tuple[str, ...]])
assert_type(lz.map(str.upper) | lz.group_by(len), lz.Stage[str, tuple[int, list[str]]])
assert_type(lz.map(read_lines) | lz.unbatch(), lz.Stage[str, str])
assert_type(lz.batch(2) | lz.map(len), lz.Stage[object, int])
assert_type(words | (lz.shuffle(seed=0) | lz.batch(2)), lz.Pipeline[list[str]])
assert_type(words | (lz.filter(len) | lz.take(2)), lz.Pipeline[str])
assert_type(words | (lz.filter(len) | lz.batch(2)), lz.Pipeline[list[str]])
assert_type(lz.map(len)(words), lz.Pipeline[int])
batches: lz.Stage[str, list[str]] = lz.batch(2)
assert_type(words | batches, lz.Pipeline[list[str]])
stages: list[lz.Stage[Any, Any]] = [lz.batch(2), lz.take(1), lz.map(len), lz.enumerate()]

# A user's own.


@lz.combinator(pointwise=True, registered=False)
def lengths(upstream: Machine[str], unit: int = 1) -> Machine[int]:
    flow: Callable[[Any], Any] = lambda at: upstream.flow(at).map(len)  # noqa: E731
    return stateless(upstream, rate=Rate(), flow=flow)


@lz.combinator(keeps_items=True, registered=False)
def unchanged(upstream: Machine[Any]) -> Machine[Any]:
    return passing(upstream)


@lz.composite
def windows(width: int, *, seed: int) -> lz.Stage[str, tuple[int, ...]]:
    return lz.map(len) | lz.shuffle(seed=seed) | lz.sliding_window(width)


assert_type(lengths(2), lz.Stage[str, int])
assert_type(words | lengths(), lz.Pipeline[int])
assert_type(words | unchanged(), lz.Pipeline[str])
assert_type(words | windows(2, seed=0), lz.Pipeline[tuple[int, ...]])


def elsewhere() -> None:
    """Code that reads or writes files or needs torch, and isn't run."""
    assert_type(words[0], str)
    assert_type(words[1:], lz.Pipeline[str])
    assert_type(next(iter(words)), str)
    assert_type(lz.run(words), lz.Run[str])
    assert_type(next(lz.run(words)), str)
    assert_type(next(lz.run(words).epoch(2)), str)
    assert_type(next(lz.run(words).with_state()), tuple[str, lz.State])
    assert_type(lz.run(words).state, lz.State)
    assert_type(lz.run(words).state_dict(), dict[str, Any])
    assert_type(lz.init(words), lz.State)
    assert_type(lz.step(words, lz.init(words)), tuple[lz.State, Any])
    assert_type(lz.state_at(words, 1), lz.State)
    assert_type(lz.advance(words, lz.init(words), 1), lz.State)
    assert_type(lz.reshard([lz.init(words)], words), list[lz.State])
    assert_type(lz.resume_cost(words, lz.init(words)), lz.types.ResumeCost)
    assert_type(lz.resume_cost(words, lz.init(words)).stages[0], lz.types.StageCost)
    assert_type(lz.trace(words, 0), list[lz.types.Origin])
    assert_type(lz.trace(words, lz.init(words)), list[lz.types.Origin])
    assert_type(lz.trace(words, lz.init(words), lz.init(words)), list[list[lz.types.Origin]])
    assert_type(lz.replay(words, lz.init(words)), Any)
    assert_type(lz.diff(lz.init(words), lz.init(words)), lz.types.Difference)
    assert_type(lz.diff(lz.init(words), lz.init(words)).moves[0], lz.types.Move)
    assert_type(lz.rebase(lz.init(words), words), lz.State)
    assert_type(lz.load("state.json"), lz.State)
    assert_type(lz.mix_counts(words, lz.init(words)), tuple[int, ...])
    assert_type(lz.torch.loader(words), Loader[str])
    dataset: Iterable[str] = lz.torch.dataset(words)  # whose class is torch's, if it is there
    assert_type(len(list(dataset)), int)
    assert_type(lz.torch.state({}), lz.State)
