"""Refused arguments that are special to one combinator, or to two of its arguments together."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import lazyckpt as lz
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


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: lz.mix([lz.count()] * 2, [1e308] * 2, seed=0), "finite numbers .* finite sum"),
        *(
            (lambda none=none: lz.random_indices(none, seed=0), "at least one number")
            for none in ([], iter([1]), {0: 1})
        ),
        (lambda: bucketed(0), "batch_size must be an int >= 1 or a function of an item"),
        (lambda: bucketed(True), "got batch_size=True"),
        (lambda: bucketed(2.0), "got batch_size=2.0"),
        (lambda: bucketed(shuffle=True), "shuffle needs a seed"),
        (lambda: lz.bucket_by_boundaries([3, 3], 2, key=len), "increasing numbers"),
        (lambda: lz.bucket_by_boundaries([float("nan")], 2, key=len), "increasing numbers"),
        (lambda: lz.bucket_by_boundaries(3, 2, key=len), "increasing numbers"),
        (lambda: lz.bucket_by_boundaries(["a", 1], 2, key=len), "increasing numbers"),
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
        (lambda: lz.batch(2, drop_last=True, pad=0), "drop_last=True and pad=0"),
    ],
)
def test_it_is_refused_and_named(build: Callable[[], object], message: str) -> None:
    assert re.search(message, refusal(build))
