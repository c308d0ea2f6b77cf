"""Checks that hold for every executor."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np

import lazyckpt as lz
from lazyckpt.testing import equal

MOST = 80  # items of a trace


class Stream:
    """Without random access."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.size))


def square(x: int) -> int:
    return x * x


def odd(x: int) -> int:
    return x % 2


def total(items: list[int]) -> int:
    return sum(items)


def noisy(rng: np.random.Generator, x: int) -> tuple[int, int]:
    return x, int(rng.integers(1 << 30))


def image(x: int) -> dict[str, Any]:
    return {"pixels": np.full((64, 80), x, np.float32), "label": x, "box": (np.arange(x),)}


PIPELINES: dict[str, Any] = {
    "seekable": lz.source(range(40)) | lz.shuffle(seed=1) | lz.map(square) | lz.batch(3),
    "stream": lz.source(Stream(25)) | lz.map(square) | lz.filter(odd) | lz.batch(2, collate=total),
    "random": lz.source(Stream(9)) | lz.random_map(noisy, seed=3),
    "arrays": lz.columns(x=np.arange(90_000).reshape(9, -1), y=np.arange(9))
    | lz.shuffle(seed=0)
    | lz.batch(2, collate=lz.stack),
    "dicts": lz.source(Stream(9)) | lz.map(image),
}


def told(run: lz.Run[Any], most: int = MOST) -> list[Any]:
    """Items, each with the state after it and what that has left out; then the end or an error."""
    found: list[Any] = []
    try:
        for item, state in islice(run.with_state(), most):
            found.append((item, state.to_json(), state.skipped.first))
    except Exception as error:
        end: Any = type(error), str(error)
    else:
        end = None
    if end is not None or len(found) < most:
        found.append((end, run.state.to_json(), run.skipped.first))
    return found


def trace(
    pipeline: Any,
    executor: lz.Executor | None = None,
    state: Any = None,
    most: int = MOST,
    on_error: Any = "raise",
) -> list[Any]:
    """The trace of a run that is opened for it."""
    with lz.run(pipeline, state, executor=executor, on_error=on_error) as run:
        return told(run, most)


def like_inline(
    pipeline: Any, executor: lz.Executor, stride: int | None = None, on_error: Any = "raise"
) -> None:
    """Assert that items, order, states and skipped records equal inline's, to the end or an error.

    A run resumed from every `stride`th state continues as inline does, and so does a run that has
    been closed and reopened there, with work in flight.
    """
    expected = trace(pipeline, on_error=on_error)
    assert equal(trace(pipeline, executor, on_error=on_error), expected)
    for cut in range(stride or len(expected), len(expected), stride or 1):
        _, state, _ = expected[cut - 1]
        rest = trace(pipeline, executor, state, MOST - cut, on_error)
        assert equal(rest, expected[cut:]), cut
        run = lz.run(pipeline, executor=executor, on_error=on_error)
        with run:
            items = list(islice(run, cut))
            assert equal(items, [item for item, *_ in expected[:cut]]), cut
            assert run.state.to_json() == state, cut
        with run:
            assert equal(told(run, MOST - cut), expected[cut:]), cut


def until_error(run: lz.Run[Any]) -> tuple[list[Any], Exception]:
    """The items before the error, and that."""
    items = []
    try:
        for item in run:
            items.append(item)
    except Exception as error:
        return items, error
    raise AssertionError("no error")
