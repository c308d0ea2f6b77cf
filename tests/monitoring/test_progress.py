"""`progress`: a bar with the position of the run, in a terminal too."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tqdm import tqdm

import lazyckpt as lz
from tests.helpers import printed_without

pytestmark = pytest.mark.usefixtures("unmonitored")


@pytest.fixture(scope="module")
def unmonitored() -> Iterator[None]:
    """No thread of tqdm's is left, next to which other tests would fork."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tqdm, "monitor_interval", 0)
        yield


BAR = re.compile(r"(\d+)(?:/(\d+))?(?: items)? \[")


def last(file: io.StringIO) -> tuple[int, int | None]:
    """The value and the end of the bar that was drawn last."""
    items, total = BAR.findall(file.getvalue())[-1]
    return int(items), int(total) if total else None


@given(st.integers(0, 12), st.integers(0, 12), st.booleans())
def test_it_begins_where_the_run_is_and_ends_where_the_loop_does(
    begin: int, taken: int, is_stream: bool
) -> None:
    pipeline = lz.source(range(12))
    data = pipeline | lz.filter(lambda x: True) if is_stream else pipeline
    first = lz.run(data)
    passed = sum(1 for _ in islice(first, begin))
    run, file = lz.run(data, first.state), io.StringIO()
    bar: Iterator[int] = lz.progress(run, file=file, mininterval=0)
    found = [*islice(bar, taken)]
    bar.close()  # type: ignore[attr-defined]
    assert found == [*range(12)][passed : passed + taken]
    assert run.state.items == passed + len(found)
    assert not found or last(file) == (passed + len(found), None if is_stream else 12)


def test_the_total_is_that_of_the_epoch() -> None:
    pipeline = lz.source(range(5)) | lz.shuffle(seed=0)
    run = lz.run(pipeline)
    assert len([*run.epoch()]) == len([*run.epoch()]) == 5
    third = run.epoch()
    next(third)
    file = io.StringIO()
    assert len([*lz.progress(run, file=file)]) == 4
    assert last(file) == (5, 5)
    assert "epoch=2" in file.getvalue()


def test_a_total_counts_from_the_beginning() -> None:
    forever = lz.source(range(5)) | lz.repeat()
    run = lz.run(forever, lz.state_at(forever, 7))
    file = io.StringIO()
    for _ in islice(lz.progress(run, total=10, desc="steps", file=file), 3):
        pass
    assert last(file) == (10, 10)
    assert file.getvalue().lstrip("\r").startswith("steps:")


def test_waits_and_items_left_out_are_shown() -> None:
    texts = lz.source(["1", "a", "3"]) | lz.map(int)
    with lz.run(texts, executor=lz.threads(2), on_error="skip") as run:
        file = io.StringIO()
        assert [*lz.progress(run, file=file, ncols=200)] == [1, 3]
    assert re.search(r"epoch=0, waiting=\d+%, skipped=1", file.getvalue())


def test_an_error_closes_the_bar_and_the_run_goes_on() -> None:
    fails = [True]

    def once(x: int) -> int:
        if x == 2 and fails.pop(0) if fails else False:
            raise ValueError("two")
        return x

    run = lz.run(lz.source(range(4)) | lz.map(once))
    found: list[int] = []
    fails[:] = [True]
    file = io.StringIO()
    with pytest.raises(ValueError, match="two") as caught:
        found.extend(lz.progress(run, file=file))
    assert file.getvalue().endswith("\n")  # like a closed bar
    del caught  # which has held the bar
    assert found + [*lz.progress(run, file=io.StringIO())] == [0, 1, 2, 3]


def test_within_a_context_it_takes_the_run_that_is_open() -> None:
    with lz.run(lz.source(range(4)), executor=lz.threads(1)) as run:
        assert [*lz.progress(run, disable=True)] == [0, 1, 2, 3]
    with pytest.raises(lz.PipelineError, match="closed"):
        [*lz.progress(run, disable=True)]


@pytest.mark.parametrize("wrong", [None, [1], lz.map(str), 3])
def test_what_is_no_run_is_refused(wrong: Any) -> None:
    with pytest.raises(
        lz.ArgumentError, match=r"progress: run must be a Run, a Pipeline or a loader of lz.torch"
    ):
        lz.progress(wrong)
    with pytest.raises(lz.ArgumentError, match="total"):
        lz.progress(lz.source([1]), total=-1)


def test_without_tqdm_the_error_names_the_extra() -> None:
    found = printed_without("tqdm", "lz.progress(lz.source([1]))")
    assert 'pip install "lazyckpt[progress]"' in found


def shown(screen: TextIO) -> Iterator[str]:
    with suppress(OSError):  # as the end of a terminal is told
        yield from screen


def test_a_narrow_terminal_has_one_line() -> None:
    code = (
        "import lazyckpt as lz, time\n"
        "for _ in lz.progress(lz.source(range(30)), desc='training'): time.sleep(0.01)\n"
    )
    root = str(Path(lz.__file__).parents[1])
    ours, theirs = os.openpty()
    termios.tcsetwinsize(theirs, (24, 40))
    command = [sys.executable, "-c", code]
    with os.fdopen(ours) as screen, os.fdopen(theirs, "w") as terminal:
        done = subprocess.run(command, stdout=terminal, stderr=terminal, cwd=root, timeout=60)
        assert done.returncode == 0
        terminal.close()
        text = "".join(shown(screen))
    drawn = [each for each in re.split(r"[\r\n]+", text) if each.strip()]
    assert "30/30" in drawn[-1]
    assert max(map(len, drawn)) <= 40
