"""What one combinator alone refuses, or two of its arguments together."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import Any

import pytest

import lazyckpt as lz
from tests.combinators.test_arguments import refusal


def bucketed(size: Any = 2, **more: Any) -> Any:
    return lz.bucket_batch(size, **{"key": abs, "window_size": 6, "shuffle": False} | more)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: bucketed(0), "batch_size must be an int >= 1 or a function of an item"),
        (lambda: bucketed(True), "got batch_size=True"),
        (lambda: bucketed(2.0), "got batch_size=2.0"),
        (lambda: bucketed(shuffle=True), "a shuffle needs a seed"),
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
            "take one of them",
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
