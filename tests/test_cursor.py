"""The position of a run while an item is being computed, and the effect of closing it then."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

import lazyckpt as lz
from tests.executors.test_interrupts import At, Interrupt, interrupt

N = 30


class Calls:
    """Does something when it is called for the item `at`, once."""

    def __init__(self, at: int) -> None:
        self.at: int | None = at
        self.do: Callable[[], Any] = lambda: None

    def __call__(self, item: int) -> int:
        if item == self.at:
            self.at = None
            self.do()
        return item

    def among(self, items: range) -> Iterator[int]:
        return map(self, items)


class Indexed:
    def __init__(self, calls: Calls) -> None:
        self.calls = calls

    def __len__(self) -> int:
        return N

    def __getitem__(self, index: int) -> int:
        return self.calls(index)


class Iterated:
    def __init__(self, calls: Calls) -> None:
        self.calls = calls

    def __iter__(self) -> Iterator[int]:
        return self.calls.among(range(N))


PLACES: dict[str, Callable[[Calls], lz.Pipeline[Any]]] = {
    "map": lambda calls: lz.source(range(N)) | lz.map(calls),
    "map of a stream": lambda calls: lz.source(range(N)) | lz.filter(is_any) | lz.map(calls),
    "filter": lambda calls: lz.source(range(N)) | lz.filter(lambda x: calls(x) >= 0),
    "indices": lambda calls: lz.source(Indexed(calls)),
    "iterable": lambda calls: lz.source(Iterated(calls)),
    "flat_map": lambda calls: lz.source(range(N)) | lz.flat_map(lambda x: [calls(x)] * (x % 3)),
    "batch": lambda calls: lz.source(range(N)) | lz.map(calls) | lz.batch(4),
    "shuffle": lambda calls: lz.source(Iterated(calls)) | lz.shuffle(5, seed=0),
    "block_shuffle": lambda calls: lz.source(Iterated(calls)) | lz.block_shuffle(5, seed=0),
    "interleave": lambda calls: lz.interleave(
        lz.source(range(3)), lz.source(range(N)) | lz.filter(lambda x: calls(x) >= 0)
    ),
    "take": lambda calls: lz.source(Iterated(calls)) | lz.take(N - 3),
    "scan": lambda calls: lz.source(Iterated(calls)) | lz.scan(lambda s, x: (s + x, s), 0),
}
places = pytest.mark.parametrize("place", PLACES)
cuts = pytest.mark.parametrize("at", [0, 1, 2, 3, 7, 20])


def is_any(x: int) -> bool:
    return True


@places
@cuts
@pytest.mark.parametrize("is_read_first", [True, False])
def test_nothing_is_delivered_after_close(place: str, at: int, is_read_first: bool) -> None:
    """Whoever calls it: a function of the pipeline, here, or a signal's handler within one."""
    expected = list(PLACES[place](Calls(-1)))
    calls = Calls(at)
    run, found, seen = lz.run(PLACES[place](calls)), list[Any](), list[lz.State]()

    def close() -> None:
        seen.extend([run.state] if is_read_first else [])
        run.close()
        seen.append(run.state)

    calls.do = close
    loop = iter(run)
    found.extend(loop)
    if calls.at is None and len(found) < len(expected):
        assert list(loop) == []
        assert {state.items for state in seen} == {len(found)} == {run.state.items}
        assert len(set(seen)) == 1
        assert seen[0] == run.state
        with pytest.raises(lz.PipelineError, match="closed"):
            next(run)
    for state in [*seen, run.state]:
        assert list(lz.run(PLACES[place](Calls(-1)), state)) == expected[state.items :]
    with run:
        assert [*found, *run] == expected


@places
@cuts
def test_loading_a_state_while_an_item_is_made(place: str, at: int) -> None:
    """The item is not delivered: the loop continues from the state."""
    expected = list(PLACES[place](Calls(-1)))
    calls = Calls(at)
    run = lz.run(PLACES[place](calls))
    start, before = run.state, list[int]()

    def load() -> None:
        before.append(run.state.items)
        run.load_state_dict(start)

    calls.do = load
    found = list(run)
    assert found == expected[: sum(before)] + expected


def test_the_items_left_out_are_known_while_another_is_made() -> None:
    calls = Calls(7)
    pipeline = lz.source(range(N)) | lz.map(odd) | lz.map(calls)
    run = lz.run(pipeline, on_error="skip")
    seen: list[tuple[int, int]] = []
    calls.do = lambda: seen.append((run.state.items, int(run.skipped)))
    assert list(run) == [*range(1, N, 2)]
    assert seen == [(3, 3)]
    assert run.skipped == N // 2


def odd(x: int) -> int:
    if x % 2 == 0:
        raise ValueError(x)
    return x


def test_closing_while_an_item_is_made_leaves_nothing_open() -> None:
    opened: list[int] = []

    class Stream:
        def __iter__(self) -> Iterator[int]:
            opened.append(1)
            try:
                yield from range(N)
            finally:
                opened.pop()

    calls = Calls(9)
    run = lz.run(lz.source(Stream()) | lz.map(calls))

    def close() -> None:
        run.close()
        assert run.state.items == 9

    calls.do = close
    assert list(run) == [*range(9)]
    assert not opened


@pytest.mark.parametrize(
    ("executor", "step"),
    [(None, 1), (lz.threads(), 29), (lz.processes(), 389)],
)
def test_next_goes_on_after_an_interrupt(executor: lz.Executor | None, step: int) -> None:
    for number in range(1, 1 << 30, step):
        with lz.run(lz.source(range(N)), executor=executor) as run:
            found: list[int] = []
            with suppress(Interrupt, StopIteration), At(number, interrupt, lines=True) as at:
                while True:
                    found.append(next(run))
            while (item := next(run, None)) is not None:
                found.append(item)
            assert found == [*range(N)], number
            with pytest.raises(StopIteration):
                next(run)
        if not at.has_come:
            assert number > N
            return
