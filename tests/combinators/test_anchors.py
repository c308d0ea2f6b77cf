"""An expansion is anchored just before its item, whatever was dropped before that."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import lazyckpt as lz
from lazyckpt.testing.laws import Stream

calls: list[int] = []


def rare(x: int) -> bool:
    calls.append(x)
    return x % 5 == 4


def three(x: int) -> list[int]:
    return [x] * 3


def halves(x: int) -> Iterator[int]:
    yield from (x, x)


def total(before: int, x: int) -> tuple[int, int]:
    return before + x, x


NUMBERS = range(40)
UPSTREAM: dict[str, lz.Pipeline[Any]] = {
    "source": lz.source(NUMBERS),
    "iterable": lz.source(Stream(NUMBERS)),
    "unfold": lz.unfold(lambda x: (x + 1, x) if x < 40 else None, 0),
    "scan": lz.source(NUMBERS) | lz.scan(total, 0),
    "window": lz.source(NUMBERS) | lz.shuffle(buffer_size=4, seed=0),
    "joined": lz.interleave(lz.source(Stream(NUMBERS)), lz.source(NUMBERS)),
    "expansion": lz.source(Stream(NUMBERS)) | lz.flat_map(halves),
}
BETWEEN: dict[str, Any] = {
    "filter": lz.filter(rare),
    "map, filter": lz.map(int) | lz.filter(rare),
    "filter, map": lz.filter(rare) | lz.map(int),
    "map, filter, two maps": lz.map(int) | lz.filter(rare) | lz.map(abs) | lz.map(int),
    "filter, tap": lz.filter(rare) | lz.tap(int),
    "filter, flat_map": lz.filter(rare) | lz.flat_map(halves),
    "two filters": lz.filter(bool) | lz.map(int) | lz.filter(rare),
}


@pytest.mark.parametrize("on_error", ["raise", "skip"])
@pytest.mark.parametrize("between", BETWEEN)
@pytest.mark.parametrize("upstream", UPSTREAM)
def test_a_resume_asks_for_the_item_and_for_none_before_it(
    upstream: str, between: str, on_error: Any
) -> None:
    pipeline = UPSTREAM[upstream] | BETWEEN[between] | lz.flat_map(three)
    expected = list(lz.run(pipeline).with_state())
    for executor in (lz.inline(), lz.threads(1), lz.threads(2)):
        run = lz.run(pipeline, executor=executor, on_error=on_error)
        assert list(run.with_state()) == expected
    for number, (item, state) in enumerate(expected[:-1]):
        calls.clear()
        assert next(lz.run(pipeline, state, on_error=on_error)) == expected[number + 1][0]
        if number % 3 < 2:  # within an expansion
            assert calls == [item]
