"""Records that hang or kill their worker: tried again, and left out as one that fails is."""

from __future__ import annotations

import faulthandler
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lazyckpt as lz
from lazyckpt.testing.laws import Stream
from tests.executors.faults import fails, keep, little_memory, notes

pytestmark = pytest.mark.usefixtures("nothing_left")

KILLED = {f"processes{n}": lz.processes(n, retries=1) for n in (1, 2)}
BRIEF = 2.0  # seconds that an item may take: one that is late by chance is tried again


class Bad:
    """The identity, but of some items: they are fatal in a worker, and else raise the same."""

    def __init__(self, bad: set[int], fatal: Callable[[], Any], error: Exception) -> None:
        self.bad, self.fatal, self.error = bad, fatal, error
        self.raised, self.consumer = 0, os.getpid()

    def __call__(self, item: Any) -> Any:
        if int(item) in self.bad:
            if os.getpid() != self.consumer:
                self.fatal()
                return item
            self.raised += 1
            raise self.error
        return item


def killing(bad: set[int], number: int = signal.SIGKILL) -> Bad:
    name = signal.Signals(number).name
    died = lz.WorkerDied(f"worker killed by {name}")
    return Bad(bad, lambda: os.kill(os.getpid(), number), died)


def hanging(bad: set[int]) -> Bad:
    late = lz.WorkerTimeout(f"timed out after {BRIEF:g} s")
    return Bad(bad, lambda: threading.Event().wait(), late)


class Data:
    """Data with indices."""

    def __init__(self, fn: Any, size: int, first: int = 0) -> None:
        self.fn, self.size, self.first = fn, size, first

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Any:
        return self.fn(self.first + index)


class Decoded(Data):
    """The names of records of the package's readers."""

    source_identity = "rows"


class Three:
    """Gives three items of each."""

    def __init__(self, fn: Any) -> None:
        self.fn = fn

    def __call__(self, item: int) -> Iterator[Any]:
        return (self.fn(3 * item + n) for n in range(3))


class Sum:
    """Collates a batch."""

    def __init__(self, fn: Any) -> None:
        self.fn = fn

    def __call__(self, items: Any) -> Any:
        return sum(map(self.fn, items))


def odd(item: Any) -> bool:
    return int(item) % 2 == 1


def small(item: Any) -> bool:
    return int(item) < 99


def pair(fn: Any) -> Any:
    return lambda a, b: (fn(a), b)


def add(before: int, x: int) -> tuple[int, int]:
    return before + x, before


def pairs(stage: Any) -> Any:
    return stage | lz.batch(3) | lz.unbatch() | lz.batch(2, drop_last=True) | lz.starmap(add)


def copied(fn: Any) -> Any:
    return lz.interleave_map(lambda x: [fn(x)] * (x % 3), cycle_length=2)


def copied_from(first: int, fn: Any) -> Any:
    some = lz.source(range(first, first + 40)) | lz.filter(lambda x: fn(x) % 3 != 1)
    return some | lz.interleave_map(lambda x: [x] * (x % 3), cycle_length=2)


def numbers(size: int = 60) -> lz.Pipeline[int]:
    return lz.source(range(size))


SHAPES: dict[str, Callable[[Any], Any]] = {
    "map": lambda fn: numbers() | lz.map(fn),
    "shuffled": lambda fn: numbers() | lz.shuffle(seed=1) | lz.map(fn) | lz.batch(4),
    "repeated": lambda fn: numbers(45) | lz.map(fn) | lz.repeat(2),
    "starmap": lambda fn: numbers() | lz.map(lambda x: (x, x)) | lz.starmap(pair(fn)),
    "tap": lambda fn: numbers() | lz.map(str) | lz.tap(fn),
    "filter": lambda fn: numbers() | lz.filter(lambda x: odd(fn(x))) | lz.map(str),
    "expansion": lambda fn: numbers(20) | lz.flat_map(Three(fn)),
    "lines": lambda fn: numbers(2) | lz.flat_map(lambda x: range(30 * x, 30 * x + 30)) | lz.map(fn),
    "rows": lambda fn: numbers(20) | lz.flat_map(lambda x: Decoded(fn, 3, 3 * x)),
    "data": lambda fn: lz.source(Data(fn, 60)) | lz.filter(odd),
    "collate": lambda fn: numbers() | lz.batch(4, collate=Sum(fn)),
    "mix": lambda fn: lz.mix(
        [numbers() | lz.map(fn), numbers() | lz.filter(fn) | lz.map(str)], [1, 2], seed=3
    ),
    "concat": lambda fn: lz.concat(numbers(20), numbers() | lz.map(fn) | lz.filter(odd)),
    "stream": lambda fn: lz.source(Stream(range(60))) | lz.map(fn) | lz.filter(odd),
    "behind a buffer": lambda fn: (
        numbers() | lz.filter(small) | lz.shuffle(8, seed=1) | lz.filter(fn) | lz.map(str)
    ),
    "before a scan": lambda fn: numbers() | lz.map(fn) | lz.scan(add, 0) | lz.map(str),
    "before pairs": lambda fn: lz.interleave(
        numbers(9) | lz.map(str), pairs(numbers() | lz.map(fn))
    ),
    "before a buffer": lambda fn: (
        numbers() | lz.filter(fn) | lz.map(str) | lz.shuffle(8, seed=1) | lz.batch(3)
    ),
    "expansions of a mixture": lambda fn: (
        lz.mix([numbers(20), copied_from(20, fn)], [1, 2], seed=1) | copied(fn)
    ),
}
shapes = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())


def delivered(run: lz.Run[Any]) -> tuple[Any, ...]:
    """All items of a run, and its reports."""
    return list(run.with_state()), run.state, run.skipped.first


def counted(pair: tuple[Any, lz.State]) -> tuple[Any, ...]:
    """An item, its place, and how many were left out before, whatever is told of them."""
    item, state = pair
    return item, state.items, state.position, int(state.skipped)


def left_out_as_errors_are(pipeline: Any, executor: lz.Executor) -> list[Any]:
    """The items and states of a run, equal to those of a run with errors in place of losses."""
    expected = delivered(lz.run(pipeline, on_error="skip"))
    assert expected[-1]
    with lz.run(pipeline, executor=executor, on_error="skip") as run:
        found = delivered(run)
    assert found == expected
    return [*found[0]]


@pytest.mark.parametrize(
    ("executor", "shape"),
    [
        pytest.param([*KILLED.values()][number % 2], shape, id=name)
        for number, (name, shape) in enumerate(SHAPES.items())
    ],
)
def test_a_record_that_kills_is_left_out(executor: lz.Executor, shape: Any) -> None:
    """Read again from the middle on it is counted once."""
    pipeline = shape(killing({6, 7, 41}))
    whole = left_out_as_errors_are(pipeline, executor)
    middle = len(whole) // 2
    with lz.run(pipeline, whole[middle][1], executor=executor, on_error="skip") as run:
        rest = [*run.with_state()]
    assert [*map(counted, rest)] == [*map(counted, whole[middle + 1 :])]


@pytest.mark.parametrize(("workers", "shape"), [(1, "map"), (2, "lines"), (2, "stream")])
def test_a_record_that_hangs_is_left_out(workers: int, shape: str) -> None:
    executor = lz.processes(workers, timeout=BRIEF)
    left_out_as_errors_are(SHAPES[shape](hanging({41})), executor)


@settings(max_examples=4)
@given(st.sampled_from([*SHAPES]), st.sets(st.integers(0, 60), max_size=3), st.integers(1, 2))
def test_any_records_that_kill_are_left_out(shape: str, bad: set[int], workers: int) -> None:
    pipeline = SHAPES[shape](killing(bad))
    executor = lz.processes(workers)
    with lz.run(pipeline, executor=executor, on_error="skip") as run:
        assert delivered(run) == delivered(lz.run(pipeline, on_error="skip"))


class Counted(Bad):
    """It leaves a line for each time that a fatal item is begun; few of them may be fatal."""

    def __init__(self, path: Path, bad: set[int], most: int = 1 << 30) -> None:
        super().__init__(bad, self.die, lz.WorkerDied("worker killed by SIGKILL"))
        self.path, self.most, self.off = path, most, path.with_suffix(".off")
        path.touch()

    def die(self) -> None:
        if self.tries() < self.most and not self.off.exists():
            with self.path.open("a") as file:
                file.write("again\n")
            os.kill(os.getpid(), signal.SIGKILL)

    def tries(self) -> int:
        return len(self.path.read_text().splitlines())


@pytest.mark.parametrize(
    ("workers", "shape"), [(1, "map"), (2, "expansion"), (1, "stream"), (2, "behind a buffer")]
)
def test_what_kills_once_is_no_error_where_it_is_tried_again(
    workers: int, shape: str, tmp_path: Path
) -> None:
    pipeline = SHAPES[shape](Counted(tmp_path / "tries", {41}, most=2))
    executor = lz.processes(workers, retries=2)
    with lz.run(pipeline, executor=executor) as run:
        assert [*run] == [*lz.run(SHAPES[shape](int))]
        assert not run.skipped
    assert len((tmp_path / "tries").read_text().splitlines()) == 2


def test_what_is_read_in_order_is_not_read_again_after_a_loss(tmp_path: Path) -> None:
    def noted(total: int, item: int) -> tuple[int, int]:
        with (tmp_path / "read").open("a") as file:
            file.write(f"{item}\n")
        return total + item, item

    pipeline = numbers() | lz.scan(noted, 0) | lz.map(Counted(tmp_path / "tries", {41}, most=2))
    with lz.run(pipeline, executor=lz.processes(2, retries=2)) as run:
        assert [*run] == [*range(60)]
    assert (tmp_path / "read").read_text().split() == [*map(str, range(60))]


@pytest.mark.parametrize("name", sorted({*SHAPES} - {"rows", "behind a buffer"}))  # read ahead
def test_an_item_that_kills_is_an_error_at_its_place(name: str) -> None:
    pipeline = SHAPES[name](killing({41}))
    expected, found = list[Any](), list[Any]()
    fails(lz.run(pipeline), expected, lz.WorkerDied, "killed by SIGKILL")
    with lz.run(pipeline, executor=lz.processes(2)) as run:
        fails(run, found, lz.WorkerDied, "was ended by SIGKILL")
    assert found == expected


@pytest.mark.parametrize("shape", ["map", "stream"])
def test_an_item_that_kills_is_an_error_after_so_many_tries(shape: str, tmp_path: Path) -> None:
    bad = Counted(tmp_path / "tries", {41})
    pipeline = SHAPES[shape](bad)
    found: list[Any] = []
    with lz.run(pipeline, executor=lz.processes(2, retries=2)) as run:
        error = fails(run, found, lz.WorkerDied, "was ended by SIGKILL")
        assert bad.tries() == 3
        assert f"after {len(found)} delivered items" in notes(error)
        assert "tried 3 times" in notes(error)
        assert "map(<Counted>), built at" in notes(error)
        bad.off.touch()
        assert [*found, *run] == [*lz.run(SHAPES[shape](int))]


@pytest.mark.parametrize("retries", [0, 1, 3])
def test_a_record_is_tried_again_before_it_is_left_out(retries: int, tmp_path: Path) -> None:
    bad = Counted(tmp_path / "tries", {41})
    executor = lz.processes(2, retries=retries)
    with lz.run(numbers() | lz.map(bad), executor=executor, on_error="skip") as run:
        assert [*run] == [x for x in range(60) if x != 41]
    assert bad.tries() == 1 + max(1, retries)


def crash() -> None:
    faulthandler.disable()  # pytest's, which would tell of it
    os.kill(os.getpid(), signal.SIGSEGV)


@pytest.mark.parametrize(
    ("dies", "says"),
    [
        (crash, "WorkerDied: worker killed by SIGSEGV"),
        (lambda: os._exit(3), "WorkerDied: worker ended with exit code 3"),
    ],
)
def test_the_text_says_how_the_worker_ended(dies: Any, says: str) -> None:
    pipeline = numbers() | lz.map(Bad({7}, dies, ValueError()))
    with lz.run(pipeline, executor=KILLED["processes2"], on_error="skip") as run:
        assert [*run] == [x for x in range(60) if x != 7]
        assert run.skipped.first == (f"map(<Bad>) before (0, 8): {says}",)


def test_an_item_for_which_there_is_no_memory_is_left_out() -> None:
    def much(item: int) -> int:
        return len(bytearray(1 << 30)) if item == 7 else item

    executor = lz.processes(2, worker_init=little_memory, retries=1)
    with lz.run(numbers() | lz.map(much), executor=executor, on_error="skip") as run:
        assert [*run] == [x for x in range(60) if x != 7]
        assert "MemoryError" in run.skipped.first[0]


def test_large_arrays_come_from_workers_that_replace_others() -> None:
    bad = killing({2, 5})
    pipeline = numbers(9) | lz.map(lambda x: np.full(1 << 16, bad(x)))
    with lz.run(pipeline, executor=KILLED["processes2"], on_error="skip") as run:
        kept = [*run]  # in shared memory, as far as there are slots
    assert [int(item[0]) for item in kept] == [0, 1, 3, 4, 6, 7, 8]
    assert all((item == item[0]).all() for item in kept)


def test_what_nobody_may_leave_out_is_an_error() -> None:
    bad = killing({7})
    pipeline = numbers() | lz.scan(lambda total, x: (bad(x), x), 0) | lz.map(str)
    found: list[Any] = []
    with lz.run(pipeline, executor=KILLED["processes2"], on_error="skip") as run:
        fails(run, found, lz.WorkerDied, "SIGKILL")
        assert found == [*map(str, range(7))]


@pytest.mark.parametrize("retries", [0, 1])
def test_all_parts_of_a_run_come_before_the_loss_of_its_worker_at_the_next_run(
    retries: int,
) -> None:
    """The worker has the next run before it is asked for the second part of the first one."""

    def expansion(item: int) -> list[bytes]:
        return [bytes(1 << 16)] * 40  # which fill three parts

    executor = lz.processes(1, retries=retries, buffer_size=4)
    with lz.run(
        lz.source([0, 1]) | lz.map(killing({1})) | lz.flat_map(expansion), executor=executor
    ) as run:
        found: list[bytes] = []
        fails(run, found, lz.WorkerDied)
        assert len(found) == 40


@pytest.mark.parametrize("read", [lz.io.iter_jsonl, lz.io.read_jsonl])
def test_rows_that_kill_are_left_out_one_by_one(read: Any, tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_text("".join(f"{n}\n" for n in range(9)))
    bad = killing({2, 5})
    pipeline = lz.source([str(path)]) | lz.flat_map(lambda file: read(file, loads=bad))
    with lz.run(pipeline, executor=KILLED["processes2"], on_error="skip") as run:
        assert [int(item) for item in run] == [0, 1, 3, 4, 6, 7, 8]
        assert run.skipped == 2


@shapes
def test_a_resume_leaves_out_what_has_killed_without_another_try(shape: Any) -> None:
    bad = killing({6, 7, 41})
    pipeline = shape(bad) | lz.filter(keep) | lz.shuffle(9, seed=1)  # which reads again
    with lz.run(pipeline, executor=KILLED["processes2"], on_error="skip") as run:
        given, last, first = delivered(run)
        assert run.stats.restarts <= 15  # a new worker leaves out what others were lost at
    for cut in (2, len(given) // 2, len(given) - 1):
        _, state = given[cut]
        assert len(state.to_json()) <= 1024
        bad.raised = 0
        with lz.run(pipeline, state, on_error="skip") as rest:
            assert [*rest] == [item for item, _ in given[cut + 1 :]]
            assert bad.raised <= rest.skipped - state.skipped
            assert int(rest.skipped) == int(last.skipped)
            assert len(rest.skipped.first) == len(first)
    bad.raised = 0
    lz.seen(pipeline, last)
    assert not bad.raised


@pytest.mark.parametrize("method", ["fork", "forkserver"])
def test_nor_do_its_workers_try_it(method: str, tmp_path: Path) -> None:
    bad = Counted(tmp_path / "tries", {6, 41})
    pipeline = SHAPES["stream"](bad) | lz.shuffle(60, seed=1)  # which reads all again
    executor = lz.processes(1, start_method=method)
    with lz.run(pipeline, executor=executor, on_error="skip") as run:
        whole = [*run.with_state()]
    tries, (_, state) = bad.tries(), whole[9]
    assert tries == 4  # two of each
    with lz.run(pipeline, state.to_json(), executor=executor, on_error="skip") as rest:
        assert [*rest.with_state()] == whole[10:]
    assert bad.tries() == tries


def test_what_is_not_asked_for_does_not_keep_workers_from_the_rest() -> None:
    turns = lz.source([True, False, True]) | lz.repeat(9)
    rest = pairs(numbers(17) | lz.map(killing({4, 9, 14})))
    pipeline = lz.switch(turns, lz.source([0]), rest)
    with lz.run(pipeline, executor=KILLED["processes2"], on_error="skip") as run:
        assert [*run] == [0]


def test_as_many_as_are_fatal_within_a_window_are_left_out() -> None:
    bad = killing({*range(6, 80, 7)})
    pipeline = numbers(80) | lz.map(bad) | lz.map(lambda x: [x] * (x % 5 + 1))
    pipeline = pipeline | lz.pack_first_fit(8, num_bins=2) | lz.map(repr)
    left_out_as_errors_are(pipeline, lz.processes(2, buffer_size=32))


@pytest.mark.parametrize("workers", [1, 2])
def test_a_record_that_kills_by_its_draw_is_left_out_for_that(workers: int) -> None:
    bad = killing({0})

    def drawn(rng: np.random.Generator, x: int) -> int:
        bad(int(rng.integers(12)))
        return x

    pipeline = numbers(20) | lz.repeat(5) | lz.random_map(drawn, seed=1)
    left_out_as_errors_are(pipeline, KILLED[f"processes{workers}"])


def test_what_killed_one_function_is_given_to_the_next() -> None:
    before, after = (numbers(8) | lz.repeat(3) | lz.map(fn) for fn in (killing({5}), int))
    with lz.run(before, executor=KILLED["processes2"], on_error="skip") as run:
        assert [next(run) for _ in range(7)] == [0, 1, 2, 3, 4, 6, 7]
        state = run.state
        run.change(after)
        assert [*run] == [*range(8)] * 2
    assert [*lz.run(after, lz.rebase(state, after), on_error="skip")] == [*range(8)] * 2


class Fatal:
    """Kills the worker that sends it."""

    def __reduce__(self) -> Any:
        os.kill(os.getpid(), signal.SIGKILL)


def fatal(x: int) -> Any:
    return Fatal() if x == 5 else x


@pytest.mark.parametrize("on_error", ["raise", "skip"])
@pytest.mark.parametrize("workers", [1, 2])
def test_a_worker_that_dies_when_it_sends_an_item_is_not_replaced_forever(
    workers: int, on_error: Any
) -> None:
    executor = lz.processes(workers)
    pipeline = lz.source(range(12)) | lz.map(fatal)
    with lz.run(pipeline, executor=executor, on_error=on_error) as run:
        found: list[Any] = []
        with pytest.raises(lz.WorkerDied):
            found.extend(run)
        assert found == [*range(run.state.items)]
        assert len(found) == 5 if on_error == "skip" else len(found) < 6  # as it came in a chunk
        assert run.stats.restarts < 40
