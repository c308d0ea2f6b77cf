"""`Explanation`: each stage with its lanes, place, bytes and bounds, as text and HTML."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from hypothesis import given
from rich.console import Console

import lazyckpt as lz
from lazyckpt.state.positions import layers
from lazyckpt.testing import strategies


class Untouched:
    """Data that nobody may read."""

    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: Any) -> Any:
        raise AssertionError("it was read")


class UntouchedStream:
    def __iter__(self) -> Iterator[Any]:
        raise AssertionError("it was read")


EXECUTORS = (None, lz.threads(1), lz.threads(3), lz.processes(2))
STREAM = lz.source(UntouchedStream())


def long() -> lz.Pipeline[Any]:
    found = lz.source(Untouched())
    for _ in range(200):
        found = found | lz.map(abs)
    return found


def wide() -> lz.Pipeline[Any]:
    branches = [lz.source(Untouched()) | lz.map(str) | lz.shuffle(9, seed=n) for n in range(50)]
    return lz.mix(branches, [1] * 50, seed=50) | lz.batch(8)


@given(strategies.pipelines())
def test_every_stage_has_its_number_and_place(pipeline: lz.Pipeline[Any]) -> None:
    have_numbers_and_places(pipeline, EXECUTORS)


def have_numbers_and_places(pipeline: lz.Pipeline[Any], executors: Iterable[Any]) -> None:
    state = lz.init(pipeline)
    numbers = {each.stage for each in layers(state.stages, state.position)}
    for executor in executors:
        found = lz.explain(pipeline, executor)
        inner = [each.stage for each in found.stages]  # a digest stands for all of a pipeline
        assert all(any(f"{each}.".startswith(f"{n}.") for each in inner) for n in numbers)
        assert all(each.where for each in found.stages)
        parts = {line.partition("  in ")[2] for line in found.layout.splitlines()}
        assert {each.where.partition("in ")[2] for each in found.stages} <= {*parts}
        top = [each for each in found.stages if "[" not in each.stage]
        assert [each.name for each in top] == [call.name for call in pipeline.calls]
        assert sum(each.state_bytes for each in top) <= len(state.to_json())


@pytest.mark.parametrize("made", [long, wide])
def test_it_reads_nothing_and_starts_nothing(made: Any) -> None:
    reads_and_starts_nothing(made, EXECUTORS)


def reads_and_starts_nothing(made: Any, executors: Iterable[Any]) -> None:
    threads = threading.active_count()
    for pipeline in (made(), STREAM | lz.shuffle(9, seed=0), lz.zip(STREAM, STREAM) | lz.batch(2)):
        for executor in executors:
            found = lz.explain(pipeline, executor)
            assert str(found)
            assert found._repr_html_()
    assert threading.active_count() == threads


def test_what_is_said_of_a_stage_is_what_holds_there() -> None:
    pipeline = STREAM | lz.shuffle(1000, seed=0) | lz.batch(2) | lz.bucket_by_boundaries(
        [2], 2, length=abs, max_wait=5
    ) | lz.bucket_by_boundaries([2], 2, length=abs) | lz.sliding_window(3)  # fmt: skip
    found = [(each.rereads, each.memory) for each in lz.explain(pipeline).stages]
    assert found == [
        ("read from its beginning", ""),
        ("at most twice 1,000 items (plus 64 below 512)", "1,000 items, and 30 bytes for each"),
        ("nothing", "one batch"),
        ("at most 5 items", "less than a batch for each bucket"),
        (
            "all since the oldest item waiting, which has no bound where a bucket is rare, "
            "and up to 255 more",
            "less than a batch for each bucket",
        ),
        ("what windows share, width - stride items", "one window"),
    ]
    table = lz.source(range(9)) | lz.shuffle(1000, seed=0) | lz.block_shuffle(4, seed=1)
    assert [each.rereads for each in lz.explain(table).stages] == ["nothing"] * 3
    assert lz.explain(table).stages[0].lanes == ("flow", "seek", "vectorized")
    assert lz.explain(pipeline).stages[0].lanes == ("flow",)
    own = lz.source(range(9)) | lz.scan(lambda s, x: (s, x), 0)
    assert lz.explain(own).stages[1].rereads == "nothing"


@pytest.mark.parametrize("width", [40, 79, 80, 99, 100, 200])
def test_it_fits(width: int) -> None:
    for made in (long, wide):
        found = lz.explain(made(), lz.threads(2))
        lines = found.to_text(width).splitlines()
        assert max(map(len, lines)) <= width
        assert len(lines) < 600
        assert "more stages" in found.to_text(width)


def test_html_escapes_what_users_write() -> None:
    pipeline = lz.source([1], name="<script>alert(1)</script>") | lz.filter(bool)
    found = lz.explain(pipeline | lz.shard(num_shards=2, index=0))._repr_html_()
    assert "<script>" not in found
    assert "&lt;script&gt;" in found
    assert "every rank" in found


def test_rich_prints_it_in_as_many_columns_as_there_are() -> None:
    console = Console(width=40, no_color=True)
    with console.capture() as capture:
        console.print(lz.explain(lz.source([[1]]) | lz.map(sum)))
    assert capture.get().endswith(lz.explain(lz.source([[1]]) | lz.map(sum)).to_text(40) + "\n")
    assert "[[1]]" in capture.get()
