"""`dedupe_bloom`: no key is yielded twice, and a state depends only on the items before it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lazyckpt as lz
from lazyckpt.testing.laws import Stream

few = st.lists(st.integers(0, 20), max_size=50)
many = st.permutations(range(150)).map(lambda items: items + items)


def once(folder: Any, block_size: int = 4, capacity: int = 1000, rate: float = 1e-9) -> Any:
    return lz.dedupe_bloom(
        int, folder, capacity=capacity, false_positive_rate=rate, block_size=block_size
    )


@pytest.mark.parametrize(("drawn", "block_size"), [(few, 1), (few, 4), (many, 64)])
@settings(max_examples=max(3, settings().max_examples // 6))  # each writes files
@given(data=st.data())
def test_a_resume_from_any_state_sees_what_was_before_it(
    drawn: Any, block_size: int, data: st.DataObject
) -> None:
    with TemporaryDirectory() as folder:
        items = data.draw(drawn)
        pipeline = lz.source(items) | once(folder, block_size)
        states = [state for _, state in lz.run(pipeline).with_state()]
        expected = list(dict.fromkeys(items))
        assert len(states) == len(expected)
        for cut in {len(expected) // 2, data.draw(st.integers(0, len(expected)))}:
            state = states[cut - 1] if cut else None
            assert list(lz.run(pipeline, state)) == expected[cut:]
            assert lz.resume_cost(pipeline, state or lz.init(pipeline)).items < block_size


@settings(max_examples=max(5, settings().max_examples // 6))
@given(few, few, st.integers(2, 9))
def test_runs_at_once_do_not_disturb_each_other(
    items: list[int], others: list[int], block_size: int
) -> None:
    """The files of two different pipelines, in one folder."""
    with TemporaryDirectory() as folder:
        pipelines = [lz.source(data) | once(folder, block_size) for data in (items, items, others)]
        runs = [lz.run(pipeline) for pipeline in pipelines]
        found: list[list[int]] = [[], [], []]
        for _ in range(50):
            for run, mine in zip(runs, found, strict=True):
                mine.extend(islice(run, 1))
        wanted = [list(dict.fromkeys(data)) for data in (items, items, others)]
        assert found == wanted
        assert [list(lz.run(p, r.state)) for p, r in zip(pipelines, runs, strict=True)] == [[]] * 3


@pytest.mark.parametrize("rate", [0.1, 0.01])
def test_no_more_is_left_out_than_is_stated(rate: float, tmp_path: Path) -> None:
    """Once there are as many as the capacity, each next one is left out at the rate."""
    capacity = 20_000
    stage = once(tmp_path, block_size=capacity, capacity=capacity, rate=rate)
    wrong = capacity - len(list(lz.source(range(capacity)) | stage))
    assert 0.1 * rate < wrong / capacity < 0.4 * rate  # the same numbers every time


def test_more_than_capacity_and_how_to_go_on(tmp_path: Path) -> None:
    pipeline = lz.source([1, 1, 2, 3, 4, 4, 5, 1]) | once(tmp_path, capacity=3)
    run = lz.run(pipeline)
    with pytest.raises(lz.PipelineError, match=r"capacity=3 items are new; .*lazyckpt.rebase"):
        list(run)
    more = lz.source([1, 1, 2, 3, 4, 4, 5, 1]) | once(tmp_path, capacity=9)
    assert list(lz.run(more, lz.rebase(run.state, more))) == [4, 5]


def test_behind_repeat_it_is_over_all_epochs(tmp_path: Path) -> None:
    pipeline = lz.source([1, 2, 3]) | lz.shuffle(seed=0) | lz.repeat(5) | once(tmp_path, 2)
    assert sorted(pipeline) == [1, 2, 3]
    assert len(list(lz.source([1, 2]) | once(tmp_path))) == 2


@pytest.mark.parametrize("damage", ["missing", "shorter", "changed", "empty"])
def test_a_file_that_is_missing_or_damaged_is_named(damage: str, tmp_path: Path) -> None:
    pipeline = lz.source(range(20)) | once(tmp_path)
    run = lz.run(pipeline)
    list(islice(run, 6))
    (file,) = tmp_path.iterdir()
    content = file.read_bytes()
    file.write_bytes(
        {"shorter": content[:-1], "changed": content[:-1] + b"x", "empty": b""}.get(damage, b"")
    )
    if damage == "missing":
        file.unlink()
    what = "is missing" if damage == "missing" else "is damaged"
    with pytest.raises(lz.InvalidState, match=rf"{file.name}, which {what}: copy it from"):
        list(lz.run(pipeline, run.state))
    assert list(pipeline) == [*range(20)]  # from the beginning, the file is written again
    assert list(lz.run(pipeline, run.state)) == [*range(6, 20)]


def test_files_are_bounded_and_never_change(tmp_path: Path) -> None:
    pipeline = lz.source(range(40)) | lz.map(lambda x: x % 16) | once(tmp_path, 8)
    list(pipeline)
    first = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    assert len(first) == 5
    assert sum(map(len, first.values())) == 8 * 16 + 24 * 5
    list(pipeline)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == first


KILLED = """
import os, signal, sys
import lazyckpt as lz
pipeline = lz.source(range(10**6)) | lz.dedupe_bloom(
    int, sys.argv[1], capacity=10**6, false_positive_rate=1e-9, block_size=16)
run = lz.run(pipeline)
for item in run:
    print(run.state.to_json(), flush=True)
"""


def test_a_kill_at_any_time_leaves_each_state_good(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        lines = list(islice(process.stdout, 200))
        os.kill(process.pid, signal.SIGKILL)
        lines += process.stdout.readlines()
    pipeline = lz.source(range(10**6)) | lz.dedupe_bloom(
        int, tmp_path, capacity=10**6, false_positive_rate=1e-9, block_size=16
    )
    for line in (lines[50], lines[150], lines[199]):
        state = lz.State.from_json(line.strip())
        assert list(islice(lz.run(pipeline, state), 9)) == [*range(state.items, state.items + 9)]


def test_a_block_that_no_folder_can_hold(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        list(lz.source(range(9)) | once(tmp_path / "file"))


def test_a_source_that_became_shorter_is_noticed(tmp_path: Path) -> None:
    long, short = (lz.source(Stream(range(n))) | once(tmp_path) for n in (20, 13))
    with pytest.raises(lz.SourceChanged, match=r"has read 3 items since its anchor, but now .* 1"):
        next(lz.run(short, lz.state_at(long, 15)))


@pytest.mark.parametrize("key", [1.5, None, (1, 2), [1]])
def test_a_key_that_has_no_one_form(key: Any, tmp_path: Path) -> None:
    stage: Any = lz.dedupe_bloom(lambda item: key, tmp_path, capacity=9, false_positive_rate=0.1)
    with pytest.raises(TypeError, match="dedupe_bloom: key must return a str, bytes or an int"):
        list(lz.source([1]) | stage)
