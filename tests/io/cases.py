"""Random files, what every reader is held to, and forks that may be killed."""

from __future__ import annotations

import os
import pickle
import re
import signal
from collections.abc import Callable, Sequence
from itertools import count, pairwise
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import pytest

import lazyckpt as lz
from lazyckpt import testing
from lazyckpt.io.decompress import zstd_module
from lazyckpt.testing import equal
from tests.helpers import in_fork

zstd = zstd_module()  # the standard library's, or its backport


def folder() -> Path:
    """A new folder, below the test run's own."""
    return Path(mkdtemp(dir=os.environ["LAZYCKPT_CACHE"]))


def written(contents: Sequence[bytes], suffix: str) -> lz.io.Files:
    """Files with such contents, in order."""
    place = folder()
    for number, content in enumerate(contents):
        Path(place, f"{number:03}{suffix}").write_bytes(content)
    return lz.io.files(f"{place}/*{suffix}")


def check_reader(rows: lz.io.Rows[Any], expected: Sequence[Any]) -> None:
    """Assert that a reader yields these rows in every mode, and keeps all laws."""
    check_reached(rows, expected)
    expected = list(expected)
    for step in (1, 2, 3):
        assert equal(rows[1::step], expected[1::step])
    some = [*range(len(rows))][::-2] * 2
    for beyond in (len(rows), -len(rows) - 1):
        for get in (rows.__getitem__, lambda i: rows.__getitems__([*some, i]), rows.locate):
            with pytest.raises(IndexError):
                get(beyond)
    for start in range(0, len(rows), max(1, len(rows) // 4)):
        blocks = rows.iter_blocks(start)
        assert equal([row for block in blocks for row in block], expected[start:])
    again = pickle.loads(pickle.dumps(rows))
    assert (rows, hash(rows), repr(rows)) == (again, hash(again), repr(again))
    assert equal(again[:], expected)
    if expected:
        check_spans(rows)
    if getattr(rows, "block_starts", None) is not None:
        order = lz.local_shuffle(2, seed=0)
        assert equal(sorted(rows | order, key=repr), sorted(expected, key=repr))
        check_columns(rows | order)
    testing.check_pipeline(lz.source(rows) | lz.shuffle(seed=1) | lz.batch(2), limit=6)


def check_reached(rows: Any, expected: Sequence[Any]) -> None:
    """Assert that a reader yields these rows: in order, by index, shuffled, resumed, in batches."""
    count, expected = len(expected), list(expected)
    assert len(rows) == count
    assert equal(list(rows), expected)
    assert equal(rows[:], expected)
    assert equal([rows[n] for n in range(count)], expected)
    assert equal([rows[-n - 1] for n in range(count)], expected[::-1])
    assert equal(rows[::-1], expected[::-1])
    some = [*range(0, count, 2), *range(1, count, 2)][::-1] * 2
    assert equal(rows.__getitems__(some), [expected[n] for n in some])
    order = lz.shuffle(seed=1)
    mixed = list(expected) | order
    assert equal(list(rows | order), list(mixed))
    state = lz.state_at(rows | order, count // 2)
    assert equal(list(lz.run(rows | order, state)), list(mixed)[count // 2 :])
    for stage in (lz.take(9), order):
        check_columns(rows | stage)


def check_good_rows(
    rows: lz.io.Rows[Any], expected: Sequence[Any], message: str | None = None
) -> None:
    """Check rows in order, by number, shuffled and resumed; None stands for a bad row.

    The errors of all bad rows have the message, or name the file. In every mode, the error of the
    first one is raised.
    """
    assert len(rows) == len(expected)
    good = [row for row in expected if row is not None]
    with lz.run(lz.source(rows), on_error="skip") as run:
        assert equal(list(run), good)
    assert run.skipped == len(expected) - len(good)
    order = lz.shuffle(seed=1)
    with lz.run(rows | order, on_error="skip") as run:
        assert equal(list(run), [row for row in list(expected) | order if row is not None])
    for number, row in enumerate(expected):
        if row is None:
            path = re.escape(rows.locate(number).path)
            with pytest.raises(lz.PipelineError, match=message or path):
                rows[number]
        else:
            assert equal(rows[number], row)
            with lz.run(lz.source(rows), lz.state_at(lz.source(rows), number)) as run:
                assert equal(next(run), row)
    batches = rows | lz.batch(len(rows) or 1, collate=lz.stack)
    for read in (lambda: [*rows], lambda: rows[::-1], lambda: batches[0]) if message else ():
        with pytest.raises(lz.io.RecordError, match=message):
            read()


def check_columns(rows: lz.Pipeline[Any]) -> None:
    """Assert that a batch made by the column equals the batch made of its rows."""
    stacked = rows | lz.batch(3, collate=lz.stack)
    for number, some in enumerate(rows | lz.batch(3)):
        try:
            expected = lz.stack(some)
        except (TypeError, ValueError) as error:
            with pytest.raises(type(error)):
                stacked[number]
        else:
            assert equal(stacked[number], expected)


def check_spans(rows: lz.io.Rows[Any]) -> None:
    """Assert that rows have the order of their files: alone, in a block with others, or sliding."""
    places = [rows.locate(i) for i in range(len(rows))]
    order = [file.path for file in rows.files]
    assert places == sorted(places, key=lambda at: (order.index(at.path), at.record))
    for one, other in pairwise(places):
        is_with = (one.start, one.stop) == (other.start, other.stop)
        is_sliding = "stride=" in repr(rows) and one.start < other.start and one.stop < other.stop
        is_apart = one.start < one.stop <= other.start
        assert one.path != other.path or is_with or is_sliding or is_apart
    files, records = rows.locate_many(np.arange(len(rows))[::-1])
    assert [(rows.paths[n], record) for n, record in zip(files, records, strict=True)] == [
        at[:2] for at in reversed(places)
    ]
    (found,) = lz.trace(lz.source(rows), len(rows) - 1)
    assert found.row == places[-1]


def is_killed(act: Callable[[], object], number: int, when: str) -> bool:
    """Return whether a forked process moves so many files, and is killed at the last of them.

    `when` is before the move, after it, or "amid": before the move, with its file cut.
    """

    def acting() -> None:
        move, moves = os.replace, count(1)

        def moved(one: str, other: str) -> None:
            is_last = next(moves) == number
            if is_last and when == "amid":
                os.truncate(one, 50)
            if is_last and when != "after":
                os.kill(os.getpid(), signal.SIGKILL)
            move(one, other)
            if is_last:
                os.kill(os.getpid(), signal.SIGKILL)

        os.replace = moved  # type: ignore[assignment]
        act()

    return in_fork(acting) == -signal.SIGKILL
