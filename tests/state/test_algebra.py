"""States as values: order, the next one, differences."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import lazyckpt as lz
from lazyckpt import State
from lazyckpt.testing.laws import Stream
from tests.state.cases import DATA, PIPELINE, STREAM


def test_states_are_ordered_by_items() -> None:
    states = [lz.state_at(PIPELINE, n) for n in range(5)]
    assert sorted([states[n] for n in (3, 0, 4, 2, 1)]) == states
    assert max(states) is states[4]
    assert states[1] < states[2] <= states[2] >= states[1]
    assert not states[2] < states[2]
    assert states[3] > states[2] != states[3]


@pytest.mark.parametrize("operator", ["__lt__", "__le__", "__gt__", "__ge__"])
def test_states_of_two_pipelines_have_no_order(operator: str) -> None:
    a, b = lz.init(PIPELINE), lz.init(DATA)
    with pytest.raises(lz.StateMismatch, match="states of different pipelines have no order"):
        sorted([a, b])
    assert a != b
    with pytest.raises(TypeError, match="not supported"):
        a < 3  # noqa: B015
    assert getattr(State, operator)(a, 3) is NotImplemented


@pytest.mark.parametrize("n", [4, sys.maxsize, sys.maxsize + 1, 10**30])
@pytest.mark.parametrize("data", [[1, 2, 3], Stream([1, 2, 3])], ids=["list", "stream"])
def test_what_is_past_the_end_is_so_however_far(n: int, data: Any) -> None:
    pipeline = lz.source(data)
    with pytest.raises(IndexError, match=f"state_at: n={n}, but the pipeline has 3 items"):
        lz.state_at(pipeline, n)
    with pytest.raises(IndexError, match=f"n={n}, but the pipeline has 2 items after item 1"):
        lz.advance(pipeline, lz.state_at(pipeline, 1), n)


def test_advance_takes_a_state_in_any_form_and_says_what_is_wrong() -> None:
    state = lz.state_at(PIPELINE, 3)
    after = lz.state_at(PIPELINE, 5)
    for form in (state, state.to_json(), state.to_json().encode(), state.to_dict()):
        assert lz.advance(PIPELINE, form, 2) == after
    for n in (-1, 1.5, True, "2", None):
        with pytest.raises(lz.ArgumentError, match="advance: n must be an int >= 0"):
            lz.advance(PIPELINE, state, n)  # type: ignore[arg-type]
    for use in (lambda it: lz.advance(PIPELINE, it, 1), lambda it: lz.replay(PIPELINE, it)):
        with pytest.raises(lz.StateMismatch, match="belongs to a different pipeline"):
            use(lz.init(DATA))
        with pytest.raises(lz.InvalidState, match="got None"):
            use(None)
        with pytest.raises(lz.InvalidState, match=r"(?s)got <run of .*; pass its \.state"):
            use(lz.run(PIPELINE))
        with pytest.raises(lz.InvalidState, match="format 4"):
            use({**state.to_dict(), "lazyckpt": 4})


def test_replay_is_exhausted_at_the_end() -> None:
    with pytest.raises(lz.errors.Exhausted):
        lz.replay(DATA, lz.state_at(DATA, 40))


def moved(pipeline: lz.Pipeline[Any], n: int, m: int) -> dict[str, Any]:
    difference = lz.diff(lz.state_at(pipeline, n), lz.state_at(pipeline, m).to_json())
    assert difference.items == m - n
    return {f"{each.stage} {each.name}": each.by for each in difference.moves}


BOTH = lz.mix([DATA, STREAM], [1, 1], deterministic=True)


@pytest.mark.parametrize(
    ("pipeline", "found"),
    [
        (DATA, {"1 source": (0, 2)}),
        (DATA | lz.map(str) | lz.batch(3), {"1 source": (0, 6)}),
        (DATA | lz.skip(3) | lz.take(9), {"1 source": (0, 2), "3 take": (2,)}),
        (DATA | lz.take(9) | lz.skip(3), {"1 source": (0, 2), "2 take": (2,)}),
        (STREAM | lz.skip(3) | lz.take(9), {"1 source": (0, 2), "3 take": (2,)}),
        (STREAM | lz.take(9) | lz.skip(3), {"1 source": (0, 2), "2 take": (2,)}),
        (DATA | lz.map(str) | lz.shuffle(seed=0) | lz.repeat(), {"3 shuffle": (2,)}),
        (DATA | lz.repeat() | lz.shuffle(5, seed=0), {"3 shuffle": (2,)}),
        (lz.zip(DATA, DATA | lz.batch(3)), {"1[0].1 source": (0, 2), "1[1].1 source": (0, 6)}),
        (
            BOTH | lz.enumerate(),
            {
                "1[0].1 source": (0, 1), "1[1].1 source": (0, 1), "1 mix": ((1, 1), 0),
                "2 enumerate": (2,),
            },
        ),
        (lz.concat(DATA, DATA), {"1[0].1 source": (0, 2)}),
        (
            lz.multiplex(lz.count(0, 0), [STREAM | lz.take(9), STREAM]),
            {"1[0].1 count": (0, 2), "1[1].1 source": (0, 2), "1[1].2 take": (2,)},
        ),
        (
            lz.switch(lz.count(), BOTH, STREAM | lz.skip(3)),
            {
                "1[0].1 count": (0, 2), "1[1].1[0].1 source": (0, 1), "1[1].1[1].1 source": (0, 1),
                "1[1].1 mix": ((1, 1), 0), "1[2].1 source": (0, 2),
            },
        ),
    ],
    ids=str,
)  # fmt: skip
def test_which_stage_moved_and_how_far(pipeline: lz.Pipeline[Any], found: dict[str, Any]) -> None:
    assert moved(pipeline, 2, 4) == found


def test_a_difference_reads_well() -> None:
    pipeline = DATA | lz.repeat() | lz.take(99)
    back = lz.diff(lz.state_at(pipeline, 50), lz.state_at(pipeline, 2))
    assert str(back) == (
        "-48 items, -1 epochs\nstage 1, source: epoch 1 → 0 · item 10 → 2\nstage 3, take: 50 → 2"
    )
    assert (back.items, back.epochs, bool(back)) == (-48, -1, True)
    assert str(lz.diff(lz.init(DATA), lz.init(DATA))) == "+0 items"
    assert eval(repr(back), {"Difference": lz.types.Difference, "Move": lz.types.Move}) == back


def test_states_of_two_pipelines_have_no_difference() -> None:
    one, other = (lz.init(DATA | lz.shuffle(seed=n)) for n in (1, 2))
    with pytest.raises(lz.StateMismatch, match=r"shuffle\(seed=1\) -> shuffle\(seed=2\)"):
        lz.diff(one, other)


def test_an_epoch_is_a_small_number_whatever_is_repeated() -> None:
    numbers = lz.source(range(3))
    once = numbers | lz.repeat() | lz.take(5)
    assert [lz.state_at(once | lz.repeat(2), n).epoch for n in range(11)] == [
        0, 0, 0, 0, 1, 1, 1, 1, 1, 2, 2,
    ]  # fmt: skip
    both = lz.mix([lz.source(range(9)), numbers], [1, 1], seed=0, stop="all_exhausted")
    assert {lz.init(both, epoch=n).epoch for n in range(3)} == {0, 1, 2}
    thrice = once | lz.repeat() | lz.take(12) | lz.repeat(2)
    assert lz.state_at(thrice, 23).epoch == 1 + 2
    assert lz.init(numbers, epoch=7).epoch == lz.init(once, epoch=7).epoch == 7


def test_a_difference_tells_how_often_was_begun_again() -> None:
    pipeline = lz.source(range(3)) | lz.repeat() | lz.take(5) | lz.repeat(3)
    states = [lz.state_at(pipeline, n) for n in range(15)]
    assert [lz.diff(states[0], state).epochs for state in states] == [
        0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2,
    ]  # fmt: skip
    assert lz.diff(states[4], states[6]).epochs == 1
    assert lz.diff(states[6], states[4]).epochs == -1


class Opened:
    """Counts iterators of it that are open, and what `read` expands."""

    count = 0

    def __iter__(self) -> Iterator[int]:
        return self._counted(range(50))

    def _counted(self, items: range) -> Iterator[int]:
        self.count += 1
        try:
            yield from items
        finally:
            self.count -= 1

    def read(self, number: int) -> Iterator[int]:
        return self._counted(range(number % 4, number % 4 + 5))


@pytest.fixture
def opened() -> Iterator[Opened]:
    """An open iterator is closed by the code that opened it, not when it is collected."""
    gc.disable()
    yield Opened()
    gc.enable()


Made = Callable[[Any, Opened], Any]
READING: dict[str, Made] = {
    "as it is": lambda data, opened: data,
    "map": lambda data, opened: data | lz.map(str),
    "filter": lambda data, opened: data | lz.filter(lambda n: n % 3),
    "flat_map": lambda data, opened: data | lz.flat_map(opened.read),
    "interleave_map": lambda data, opened: data | lz.interleave_map(opened.read, cycle_length=3),
    "pipelines": lambda data, opened: data | lz.flat_map(lambda _: lz.source(opened)),
    "batch": lambda data, opened: data | lz.flat_map(opened.read) | lz.batch(3),
    "shuffle": lambda data, opened: data | lz.flat_map(opened.read) | lz.shuffle(4, seed=0),
    "block_shuffle": lambda data, opened: data | lz.block_shuffle(4, seed=0),
    "pack": lambda data, opened: data | lz.map(lambda n: [n]) | lz.pack_first_fit(4, num_bins=2),
    "dedupe": lambda data, opened: data | lz.dedupe(str, window=3),
    "group_by": lambda data, opened: data | lz.group_by(lambda n: n // 3),
    "flat_scan": lambda data, opened: data | lz.flat_scan(lambda s, n: (s, [n, n]), 0),
    "repeat": lambda data, opened: data | lz.take(3) | lz.repeat(),
    "zip": lambda data, opened: lz.zip(data, lz.source(opened) | lz.flat_map(opened.read)),
    "mix": lambda data, opened: lz.mix([data, lz.source(opened)], [1, 1], seed=0),
    "concat": lambda data, opened: lz.concat(data | lz.take(2), lz.source(opened)),
    "interleave": lambda data, opened: lz.interleave(data, lz.source(opened)),
}
TAKES: dict[str, Callable[[Any], Any]] = {
    "replay": lambda pipeline: lz.replay(pipeline, lz.state_at(pipeline, 2)),
    "until": lambda p: lz.replay(p, lz.init(p), lz.state_at(p, 3)),
    "step": lambda pipeline: lz.step(pipeline, lz.step(pipeline, lz.init(pipeline))[0])[1],
    "state_at": lambda pipeline: lz.state_at(pipeline, 3),
    "trace": lambda p: (
        lz.trace(p, 2),
        lz.trace(p, lz.init(p)),
        lz.trace(p, lz.init(p), lz.state_at(p, 2)),
    ),
}


@pytest.mark.parametrize("how", TAKES)
@pytest.mark.parametrize("name", READING)
def test_what_was_opened_is_closed(name: str, how: str, opened: Opened) -> None:
    pipeline = READING[name](lz.source(opened), opened)
    TAKES[how](pipeline)
    assert opened.count == 0


def test_a_step_keeps_open_what_the_next_one_goes_on_with(opened: Opened) -> None:
    pipeline = lz.source(opened) | lz.flat_map(opened.read)
    first, _ = lz.step(pipeline, lz.init(pipeline))
    second, _ = lz.step(pipeline, first)
    assert opened.count == 2
    lz.step(pipeline, first)  # from elsewhere
    assert opened.count == 0
    third, item = lz.step(pipeline, second)
    assert (third.items, item, opened.count) == (3, 2, 2)
    del third
    assert opened.count == 0


def test_the_end_and_an_error_close_what_was_opened(opened: Opened) -> None:
    short = lz.zip(lz.source(opened), lz.source(Stream(range(2))))
    state, _ = lz.step(short, lz.init(short))
    state, _ = lz.step(short, state)
    with pytest.raises(lz.errors.Exhausted):
        lz.step(short, state)
    assert opened.count == 0
    failing = lz.zip(lz.source(opened), lz.source(Stream([1, 0])) | lz.map(lambda n: 1 // n))
    state, _ = lz.step(failing, lz.init(failing))
    for again in (lz.step, lz.replay):
        with pytest.raises(ZeroDivisionError) as raised:
            again(failing, state)
        raised.value.__traceback__ = None  # its frames hold the items read
        assert opened.count == 0
