"""What holds under every executor, for the tests of each."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np

import lazyckpt as lz
from lazyckpt.core.call import same


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


def trace(pipeline: Any, executor: lz.Executor | None = None, state: Any = None) -> list[Any]:
    """Items, each with the JSON of the state after it."""
    with lz.run(pipeline, state, executor=executor) as run:
        return [(item, after.to_json()) for item, after in run.with_state()]


def like_inline(pipeline: Any, executor: lz.Executor, stride: int | None = None) -> None:
    """That items, order and states are inline's, and every `stride`th state resumes under both."""
    expected = trace(pipeline)
    assert same(trace(pipeline, executor), expected)
    cuts = range(0, len(expected), stride or len(expected) + 1)
    for cut in cuts[1:]:
        assert same(trace(pipeline, executor, expected[cut - 1][1]), expected[cut:])
        with lz.run(pipeline, executor=executor) as run:
            assert same(list(islice(run, cut)), [item for item, _ in expected[:cut]])
            state = run.state  # with work in flight
        assert same(trace(pipeline, None, state), expected[cut:])


def until_error(run: lz.Run[Any]) -> tuple[list[Any], Exception]:
    """The items before the error, and that."""
    items = []
    try:
        for item in run:
            items.append(item)
    except Exception as error:
        return items, error
    raise AssertionError("no error")
