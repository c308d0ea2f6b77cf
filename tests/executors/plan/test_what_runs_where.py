"""Where `explain` says that stages run."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest

import lazyckpt as lz
from tests.executors.cases import Stream, odd, square, total
from tests.executors.table import picks

pytestmark = pytest.mark.usefixtures("nothing_left")

NUMBERS = lz.source(range(100))
STREAM = lz.source(Stream(100))
HERE = "in one separate ..., in order"  # a thread or a process
OWN = "by random access"
RUNS = "each input with its outputs"
SINGLY = "item by item"
CHOSEN = "chosen items by random access"


@dataclass(frozen=True)
class Unhashable:
    numbers: list[int]

    def __call__(self, items: list[Any]) -> int:
        return len(items)


class Scaled(NamedTuple):
    """A function, though tuples are plain data."""

    factor: int

    def __call__(self, x: int) -> int:
        return self.factor * x


@lz.composite
def named(n: int) -> Any:
    return lz.map(square) | lz.batch(n)


def drawn(rng: np.random.Generator, x: Any) -> Any:
    return x


PLANS: dict[str, tuple[lz.Pipeline[Any], list[str]]] = {
    "seekable": (NUMBERS | lz.shuffle(seed=0) | lz.map(square) | lz.batch(2), [OWN]),
    "item by item": (NUMBERS | lz.filter(odd), [RUNS]),
    "and then a stream": (NUMBERS | lz.map(square) | lz.filter(odd) | lz.batch(3), [RUNS, HERE]),
    "what counts items": (
        NUMBERS | lz.filter(odd) | lz.random_map(drawn, seed=0) | lz.map(square),
        [RUNS, SINGLY],
    ),
    "what ends all": (
        NUMBERS | lz.map(square) | lz.take_while(odd) | lz.flat_map(range) | lz.map(square),
        [OWN, HERE, SINGLY],
    ),
    "a composite": (NUMBERS | named(2) | lz.unbatch() | lz.filter(odd) | lz.map(square), [RUNS]),
    "joined": (
        lz.mix([NUMBERS | lz.map(square), NUMBERS | lz.flat_map(range)], [1, 2], seed=0)
        | lz.batch(2),
        [OWN, RUNS, HERE],
    ),
    "joined twice": (
        lz.concat(lz.interleave(NUMBERS | lz.filter(odd), NUMBERS), NUMBERS) | lz.tap(odd),
        [RUNS, HERE, HERE, HERE, HERE, SINGLY],
    ),
    "joined for nothing": (lz.concat(STREAM, NUMBERS), ["as one stream"]),
    "data behind what joins": (
        lz.zip(NUMBERS | lz.map(square), NUMBERS) | lz.group_by(odd),
        [OWN, HERE],
    ),
    "chosen": (
        lz.case(STREAM | lz.map(picks), NUMBERS | lz.map(square), STREAM | lz.map(square), NUMBERS)
        | lz.map(square)
        | lz.filter(odd),
        [HERE, SINGLY, CHOSEN, HERE, SINGLY, CHOSEN, HERE, SINGLY, HERE],
    ),
    "a function that is a tuple": (STREAM | lz.skip(2) | lz.map(Scaled(3)), [HERE, SINGLY]),
    "a collate": (STREAM | lz.batch(2, collate=total), [HERE, SINGLY]),
    "stack is sooner done than sent": (STREAM | lz.batch(2, collate=lz.stack), ["as one stream"]),
    "a collate that is no key": (STREAM | lz.batch(2, collate=Unhashable([1])), [HERE, SINGLY]),
    "stack behind what workers make": (
        STREAM | lz.map(square) | lz.batch(2, collate=lz.stack) | lz.map(square),
        [HERE, SINGLY, HERE, SINGLY],
    ),
    "between streams": (
        NUMBERS | lz.map(square) | lz.group_by(odd) | lz.tap(odd) | lz.take_while(odd),
        [OWN, HERE, SINGLY, HERE],
    ),
    "nothing to do": (STREAM | lz.enumerate() | lz.batch(2), ["as one stream"]),
}


def segments(pipeline: lz.Pipeline[Any], executor: lz.Executor | None = None) -> list[str]:
    """A line for each segment, however long."""
    said = lz.explain(pipeline, executor).layout
    return re.sub(r"\n *(\| |  in )", r" \1", said).splitlines()


@pytest.mark.parametrize("name", PLANS)
def test_what_it_says(name: str) -> None:
    pipeline, expected = PLANS[name]
    for executor in (lz.threads(2), lz.processes(2)):
        lines = segments(pipeline, executor)
        assert len(lines) == len(expected)
        for line, part in zip(lines, expected, strict=True):
            assert re.search(part.replace("...", r"\w+") + r"; (prefetch \d+|no prefetch)$", line)
    for one in (lz.threads(), lz.processes()):
        assert "in one " in segments(pipeline, one)[-1]
    *_, line = segments(pipeline)
    assert line.endswith("in the consumer's thread, on demand; no prefetch")


def test_what_it_says_of_the_executor_of_others() -> None:
    with ThreadPoolExecutor(1) as pool:
        executor = lz.futures(pool, buffer_size=3)
        assert lz.explain(lz.source(range(9)) | lz.map(square), executor).layout.splitlines() == [
            "source(range(0, 9)) | map(square)  as tasks of a ThreadPoolExecutor, by random access"
            "; prefetch 3",
        ]
        assert lz.explain(lz.source(Stream(9)) | lz.map(square), executor).layout.splitlines() == [
            "source(<Stream>)  in one separate thread, in order; no prefetch",
            "map(square)       as tasks of a ThreadPoolExecutor, item by item; prefetch 7",
        ]


def fails(items: list[int]) -> int:
    raise ValueError(items)


@pytest.mark.parametrize("executor", [None, lz.threads(2), lz.processes(2)], ids=repr)
def test_an_error_in_a_collate_that_runs_apart_names_the_stage(executor: Any) -> None:
    pipeline = STREAM | lz.batch(2, collate=fails)
    with lz.run(pipeline, executor=executor) as run, pytest.raises(ValueError, match="0, 1") as got:
        next(run)
    assert got.value.__notes__[0].startswith("lazyckpt: in batch(2, collate=fails), built at ")
