"""`interleave_map`: the order, the open iterables, and those that a resume opens again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import lazyckpt as lz
from lazyckpt.testing.laws import Stream


def repeated(text: str) -> list[str]:
    return [text] * 6


def test_interleave_map_reads_in_the_order_of_tf_data() -> None:
    """The example of tf.data.Dataset.interleave's documentation."""
    pipeline = lz.source(list("12345")) | lz.interleave_map(
        repeated, cycle_length=2, block_length=4
    )
    assert "".join(pipeline) == "111122221122" + "333344443344" + "555555"


@pytest.mark.parametrize("cycle_length", [1, 3, 10])
def test_interleave_map_loses_nothing_and_opens_no_more_than_it_may(cycle_length: int) -> None:
    now, most = [0], [0]

    def opening(n: int) -> Iterator[tuple[int, int | None]]:
        now[0] += 1
        most[0] = max(most[0], now[0])
        yield from ((n, None if i == 1 else i) for i in range(n % 4))
        now[0] -= 1

    pipeline = lz.source(range(9)) | lz.interleave_map(opening, cycle_length=cycle_length)
    found = list(pipeline)
    wanted = [(n, None if i == 1 else i) for n in range(9) for i in range(n % 4)]
    assert sorted(found, key=repr) == sorted(wanted, key=repr)
    assert most[0] <= cycle_length
    if cycle_length == 1:
        assert found == wanted


def test_interleave_map_opens_again_only_what_was_open() -> None:
    opened = []

    def noted(n: int) -> range:
        opened.append(n)
        return range(10 * n, 10 * n + 10)

    pipeline = lz.source(range(20)) | lz.interleave_map(noted, cycle_length=3)
    whole = list(pipeline)
    state = lz.state_at(pipeline, 100)
    opened.clear()
    assert next(lz.run(pipeline, state)) == whole[100]
    assert opened == [10]
    assert list(lz.run(pipeline, state)) == whole[100:]


def test_the_state_of_interleave_map_grows_with_cycle_length() -> None:
    def size(cycle_length: int) -> int:
        stage = lz.interleave_map(range, cycle_length=cycle_length)
        return len(lz.state_at(lz.source(range(100, 500)) | stage, 2000).to_json())

    assert (size(24) - size(8)) / 16 < 20
    assert size(24) < 1024


def test_interleave_map_refuses_and_names_what_is_wrong() -> None:
    pipeline: Any = lz.source([1]) | lz.interleave_map(abs, cycle_length=2)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="not iterable") as caught:
        list(pipeline)
    assert "interleave_map(abs" in caught.value.__notes__[0]
    lengths = [3]
    shrinking = lz.source([0]) | lz.interleave_map(lambda _: range(lengths[0]), cycle_length=2)
    state = lz.state_at(shrinking, 2)
    lengths[0] = 1
    with pytest.raises(lz.SourceChanged, match="after item 2 of an expansion that now has 1"):
        list(lz.run(shrinking, state))
    stage = lz.interleave_map(lambda n: [n] * 3, cycle_length=2)
    long, short = (lz.source(Stream(range(n))) | stage for n in (4, 1))
    with pytest.raises(lz.SourceChanged, match="an open input no longer exists"):
        list(lz.run(short, lz.state_at(long, 3)))
