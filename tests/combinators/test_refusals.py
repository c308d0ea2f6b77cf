"""Arguments, items and results of functions that a combinator refuses: its own error for each."""

from __future__ import annotations

import math
import re
import sys
from collections import namedtuple
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import lazyckpt as lz
from lazyckpt.testing import sources
from lazyckpt.testing.laws import Stream
from tests.combinators.test_arguments import refusal


def bucketed(size: Any = 2, **more: Any) -> Any:
    return lz.bucket_batch(size, **{"key": abs, "window_size": 6, "shuffle": False} | more)


BAD_WEIGHTS: list[tuple[Any, str]] = [
    ([1, -1], "finite numbers >= 0, but weight 1 is .*-1"),
    ([math.nan, 1], "weight 0 is .*nan"),
    ([0, 0.0], "at least one of them above 0"),
    ([1, math.inf], "weight 1 is .*inf"),
    (["1", 1], "weight 0 is '1'"),
    ([None, 1], "weight 0 is None"),
    ([10**400, 1], "weight 0 is 1000"),
    ([1j, 1], "weight 0 is 1j"),
    ([True, -1], "weight 1 is .*-1"),
    ([1, Fraction(1, 2)], "weight 1 is Fraction"),
    ([[1, 2], [3, 4]], r"weight 0 is \[1, 2\]"),
    (np.ones((2, 2)), r"weight 0 is \[1.0, 1.0\]"),
    *((none, "a sequence of at least one number") for none in (3, np.float64(3), "12", None)),
]


@pytest.mark.parametrize(("weights", "reason"), BAD_WEIGHTS)
def test_weights_that_are_none_are_refused(weights: Any, reason: str) -> None:
    for name, use in {
        "mix": lambda: lz.mix([lz.count(), lz.count()], weights, seed=0),
        "sample": lambda: lz.sample(weights, seed=0),
        "random_indices": lambda: lz.random_indices(weights, seed=0),
    }.items():
        assert re.search(rf"^{name}: weights must be .*{reason}", refusal(use))


ENDLESS = lz.source([1]) | lz.repeat()
STREAM: Any = lz.source(Stream([1]))
TWO: Any = [lz.count(), lz.count()]
SOME = lz.source(range(4))
DATED = lz.hash_range(0, 0.5, seed=0, key=[1.5])
PLAN = lz.plan_packing([1, 1], 4, seed=0)
CONTIGUOUS = lz.shard(num_shards=2, index=0, contiguous=True)


def halves(**given: Any) -> Any:
    stage, _ = lz.split([0.5, 0.5], seed=0, **given)
    return stage


def blocks(starts: Any) -> Any:
    data = sources.Blocks([1, 2])
    data.block_starts = starts
    return lz.source(data) | lz.local_shuffle(2, seed=0)


WHERE_IT_IS_BUILT: list[tuple[Callable[[], object], str]] = [
    (lambda: lz.mix(TWO, [1e308] * 2, seed=0), "finite numbers .* finite sum"),
    (lambda: lz.mix(TWO, [1, 2, 3], seed=0), "expected one weight per pipeline"),
    (lambda: lz.mix(TWO, [], seed=0), "got 0 weights for 2"),
    (lambda: lz.mix(TWO, [1, 2]), "seed must be given"),
    (lambda: lz.mix(TWO, lambda t: [1, 2], deterministic=True), "fixed weights"),
    (lambda: lz.mix([], [1], seed=0), "at least one pipeline"),
    (lambda: lz.mix([], [], seed=0), "one pipeline is needed, got none"),
    (lambda: lz.mix(TWO[0], [1], seed=0), "pipelines must be a list"),
    (lambda: lz.mix([TWO[0], [1]], [1, 1], seed=0), "argument 2 must be a pipeline"),  # type: ignore[list-item]
    (lambda: lz.mix(TWO, [1, 2], seed=-1), "seed must be"),
    (lambda: lz.mix(TWO, [1, 2], deterministic=1), "deterministic must be"),  # type: ignore[arg-type]
    *(
        (lambda none=none: lz.random_indices(none, seed=0), "at least one number")
        for none in ([], iter([1]), {0: 1})
    ),
    (lambda: bucketed(0), "batch_size must be an int >= 1 or a function of an item"),
    (lambda: bucketed(True), "got batch_size=True"),
    (lambda: bucketed(2.0), "got batch_size=2.0"),
    (lambda: bucketed(shuffle=True), "shuffle needs a seed"),
    *(
        (
            lambda none=none: lz.bucket_by_boundaries(none, 2, key=len),
            "boundaries must be increasing numbers",
        )
        for none in ([3, 3], [math.nan], 3, ["a", 1], "abc", "", b"abc", [(1, 2)], [[1], [2]])
    ),
    (lambda: lz.bucket_by_boundaries([3], [2], key=len), "2 buckets, got 1 batch sizes"),
    (lambda: lz.bucket_by_boundaries([3], [2, 0], key=len), "or a list of such"),
    (lambda: lz.bucket_by_boundaries([3], 2, key=len, max_wait=1), "an int >= 2 or None"),
    (
        lambda: lz.bucket_by_boundaries([], 4, key=len, max_wait=10**30),
        f"an int <= {sys.maxsize} or None",
    ),
    (
        lambda: lz.bucket_by_boundaries([3], 2, key=len, max_wait=4, drop_last=True),
        "use only one of them",
    ),
    (lambda: lz.pack_first_fit(4, 2), "too many positional"),
    (
        lambda: lz.pack_best_fit(4, num_bins=1, overflow="cut"),
        "overflow must be 'error', 'split', 'truncate' or 'drop', got overflow='cut'",
    ),
    (lambda: lz.random_floats(3), "random_floats"),
    (lambda: lz.case(lz.count()), "case: at least one pipeline to pick from is needed"),
    (lambda: lz.case([0], lz.count()), r"case: every argument must be a pipeline, got \[0\]"),
    (lambda: lz.switch(lz.count(), [1], lz.count()), "switch: every argument must be a pip"),
    *(
        (lambda given=given: lz.multiplex(*given), "multiplex: ")
        for given in ((SOME, []), ([0], [SOME]), (SOME, [[1]]), (SOME, SOME))
    ),
    (lambda: lz.batch(2, drop_last=True, pad=0), "drop_last=True and pad=0"),
    (lambda: lz.interleave(SOME, block_length=0), "block_length must be an int >= 1"),
    (lambda: lz.interleave(), "at least one"),
    (lambda: lz.zip(SOME, lz.source([1]), strict=True), r"one length, got \[4, 1\]"),
    (lambda: lz.zip(SOME, strict=1), "strict must be True or False"),  # type: ignore[arg-type]
    *(
        (lambda none=none: lz.split(none, seed=0), "split: fractions must be")
        for none in ([], [1.5], [0.5, 0.6], [-0.1], "ab", None, 3, {}, [True])
    ),
    (lambda: lz.hash_range(0.6, 0.5, seed=0), r"start=0\.6 is above stop=0\.5"),
    *(
        (lambda none=none: SOME | lz.hash_range(0, 1, seed=0, key=none), message)
        for none, message in (
            ("abcd", "key must be a function, or a sequence of keys, one per item or None"),
            *((none, "key must be a function, or a seq") for none in ({1: 1}, 3, np.zeros((4, 1)))),
            ([*"abc"], "3 keys for 4 items"),
        )
    ),
    (lambda: (lz.count() | DATED).machine, "pass `key` as a function"),
    (lambda: (STREAM | halves()).machine, "pass `key`"),
    (lambda: (lz.count() | halves()).machine, "is endless"),
    *(
        (lambda none=none: lz.sample_balanced(none, seed=0), "labels must be")
        for none in (None, 3, "ab", {"a": 1}, np.zeros((2, 2)))
    ),
    *(
        (lambda data=data, stage=stage: (data | stage).machine, message)
        for data, stage, message in (
            ([1, 2], lz.sample([1], seed=0), "1 weights for 2 items"),
            ([1], lz.sample_balanced([1, 2], seed=0), "2 labels for 1 items"),
            ([1], lz.oversample([], seed=0), "0 labels for 1 items"),
            ([1, 2], lz.sample([1, 0], seed=0, replacement=False, num_samples=2), "num_samples=2"),
            ([1, 2], lz.sample_balanced([1, [2]], seed=0), "labels must be hashable"),
            (STREAM, lz.sample([1], seed=0), "has no random access"),
            (STREAM, lz.sample_balanced([1], seed=0), "has no random access"),
            (STREAM, lz.lru_cache(2), "lru_cache: the pipeline before it has no random access"),
            (STREAM, lz.gather([0]), "no random access"),
            (STREAM, lz.local_shuffle(2, seed=0), r"no random access; put it .* block_shuffle"),
            (lz.count(), lz.local_shuffle(2, seed=0, block_size=2), "is endless"),
            (STREAM, CONTIGUOUS, "contiguous=True, and .* has no random access"),
            (ENDLESS, CONTIGUOUS, "contiguous=True, and .* is endless"),
            ([[1]], lz.pack_by_plan(PLAN), "pack_by_plan: .*1 documents, but the plan is for 2"),
            (STREAM, lz.pack_by_plan(PLAN), "pack_by_plan: .*has no random access"),
            (lz.count(), lz.pack_by_plan(PLAN), "pack_by_plan: .*is endless"),
        )
    ),
    *(
        (lambda starts=starts: list(blocks(starts)), "source: block_starts must be ints in one dim")
        for starts in ([0.5], [[0], [1]], "abc")
    ),
    (lambda: lz.pack_by_plan([1, 2]), "pack_by_plan: plan must be a PackingPlan from plan_packing"),
    *(
        (lambda arrays=arrays: lz.columns(**arrays), f"(?s)^columns: .*{re.escape(shown)}")
        for arrays, shown in (
            ({}, "none"),
            ({"x": [1], "y": [1, 2]}, "'y': 2"),
            ({"x": np.zeros((3, 2)), "y": np.zeros((2, 3))}, "'x': 3"),
            ({"x": 3}, "3"),
            ({"x": [1], "y": None}, "None"),
            ({"x": [1], "y": np.array(7)}, "7"),
            ({"x": "abc"}, "'abc'"),
            ({"x": {"a": 1}}, "{'a': 1}"),
            ({"x": [[1], [1, 2]]}, "[[1], [1, 2]]"),
        )
    ),
    *(
        (lambda none=none: lz.init(SOME, epoch=none), "epoch")
        for none in (-1, None, "a", 1.0, True)
    ),
    *(
        (
            lambda none=none: lz.state_at(SOME, none),
            f"state_at: n must be.*{re.escape(repr(none))}",
        )
        for none in (None, 1.5, math.nan, "1", True, [1], np.float64(1))
    ),
    (lambda: lz.shard(num_shards=4, index=4), "num_shards=4, got index=4"),
    (lambda: lz.shard(num_shards=4, index=10**30), f"num_shards=4, got index={10**30}"),
    (
        lambda: lz.shard(num_shards=2, index=0, remainder="drop", pad=0),
        r"pad=0 requires .*got remainder='drop'",
    ),
]


@pytest.mark.parametrize(("build", "message"), WHERE_IT_IS_BUILT)
def test_it_is_refused_and_named(build: Callable[[], object], message: str) -> None:
    assert re.search(message, refusal(build))


class Odd:
    """A key that can't be compared."""

    def __eq__(self, other: object) -> bool:
        raise ArithmeticError("no")

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return "odd"


class Mine:
    def __hash__(self) -> int:
        raise TypeError("mine")


def gives(value: Any) -> Callable[[Any], Any]:
    return lambda item: value


def fails(item: Any) -> Any:
    raise TypeError("'int' has no len")


Pair = namedtuple("Pair", ["a", "b"])

# Stages, items, and the errors when these are read.
WHERE_IT_IS_READ: list[tuple[Any, Any, type[Exception], str]] = [
    *(
        (bucketed(gives(size)), [1], lz.ArgumentError, r"batch_size\(item\) must be an int >= 1")
        for size in (0, -1, 2.0, True, None, "2")
    ),
    *(
        (bucketed(key=lambda item, odd=odd: odd if item else 1), [0, 1], TypeError, message)
        for odd in (None, "a", np.zeros(2))
        for message in [r"bucket_batch: keys .* can't be compared"]
    ),
    (bucketed(key=fails), [1], TypeError, "'int' has no len"),
    *(
        (lz.bucket_by_boundaries([3], 2, key=gives(none)), [1], TypeError, "must return a number")
        for none in (None, "a", math.nan, np.zeros(2))
    ),
    *(
        (lz.dedupe(gives(none), window=3), [1], TypeError, "must return a hashable value")
        for none in ([1], {}, set[int]())
    ),
    (lz.dedupe(gives(Mine()), window=3), [1], TypeError, "mine"),
    *(
        (stage, [1], TypeError, "key must return a str, bytes or an int")
        for none in (1.5, None, (1, 2), [1])
        for stage in (
            halves(key=gives(none)),
            lz.dedupe_bloom(gives(none), "none", capacity=9, false_positive_rate=0.1),
        )
    ),
    (DATED, [1], TypeError, r"key must return a str, bytes or an int, got 1\.5"),
    (
        lz.group_by(lambda item: Odd()), [1, 2], TypeError,
        "group_by: keys odd and odd can't be compared",
    ),
    *(
        (stage(9, key=gives(none)), ["word"], TypeError, "return an int >= 0, got .* for 'word'")
        for none in (None, -1, 2.0, "3", True, [1])
        for stage in (lz.token_batch, lz.take_tokens)
    ),
    *(
        (lz.shard_batch(num_shards=2, index=0, key=gives(cost)), [item], TypeError, "shard_batch: ")
        for item, cost in (([1], None), ([1], -1), ([1], "1"), (3, 1))
    ),
    (lz.starmap(max), [3], TypeError, "must be an iterable"),
    (lz.flat_scan(lambda s, x: ({1}, []), 0), [1, 2], lz.PipelineError, "its state.*set"),
    (lz.flat_scan(lambda s, x: (s, 3), 0), [1], TypeError, "not iterable"),
    *(
        (lz.unbatch(), [batch], error, f"^unbatch: .*{words}")
        for batch, error, words in (
            ({"x": [1, 2], "y": np.arange(3)}, ValueError, "unequal lengths {'x': 2, 'y': 3}"),
            (([1], [1, 2]), ValueError, "unequal lengths {0: 1, 1: 2}"),
            (Pair([1], []), ValueError, "unequal lengths {0: 1, 1: 0}"),
            ({"x": {"a": [1], "b": []}, "y": [1]}, ValueError, "unequal lengths {'a': 1, 'b': 0}"),
            ("abc", TypeError, r"expected a batch, got 'abc' \(str\)"),
            (b"abc", TypeError, r"expected a batch, got b'abc' \(bytes\)"),
            ({"x": [1, 2], "y": "ab"}, TypeError, r"expected a batch, got 'ab' \(str\)"),
            (3, TypeError, r"expected a batch, got 3 \(int\)"),
            (np.array(3), TypeError, r"expected a batch, got array\(3\) \(ndarray\)"),
            ({"x": np.array(3)}, TypeError, r"expected a batch, got array\(3\) \(ndarray\)"),
        )
    ),
    *(
        (lz.split_batch(2), [batch], error, words)
        for batch, error, words in (
            (3, TypeError, "expected a batch, got 3"),
            ("abc", TypeError, "expected a batch, got 'abc'"),
            (b"abc", TypeError, "expected a batch, got b'abc'"),
            (None, TypeError, "expected a batch, got None"),
            ({}, TypeError, "expected a batch, got {}"),
            (np.array(3), TypeError, "expected a batch"),
            ({"x": [1], "y": [1, 2]}, ValueError, r"unequal lengths \[1, 2\]"),
        )
    ),
    *(
        (stage, [item], error, message)
        for stage in (
            lz.concat_then_split(4),
            lz.pack_first_fit(4, num_bins=2),
            lz.pack_best_fit(4, num_bins=2),
            lz.pack_by_plan(lz.plan_packing([1], 4, seed=0)),
        )
        for item, error, message in (
            (3, TypeError, "expected a sequence of tokens, or a mapping of such, got 3"),
            (None, TypeError, "got None"),
            ("abc", TypeError, "got 'abc'"),
            (b"abc", TypeError, "got b'abc'"),
            ({}, TypeError, "got {}"),
            ({"x": [1], "y": [1, 2]}, ValueError, "unequal lengths {'x': 1, 'y': 2}"),
            ({"x": 1, "y": 3}, TypeError, "expected a sequence"),
            ({"positions": [1]}, ValueError, "reserved name 'positions'"),
        )
    ),
    *(
        (stage, [[1], {"x": [1]}], ValueError, "has features .*others have")
        for stage in (
            lz.concat_then_split(4),
            lz.pack_first_fit(4, num_bins=2),
            lz.pack_best_fit(4, num_bins=2),
            lz.pack_by_plan(PLAN),
        )
    ),
]  # fmt: skip


@pytest.mark.parametrize(("stage", "items", "error", "message"), WHERE_IT_IS_READ)
def test_what_cannot_be_read_is_named(
    stage: Any, items: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        list(items | stage)
