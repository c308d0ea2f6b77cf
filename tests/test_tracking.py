"""`tracked`: items finished in any order, by any process, and the items of a resume."""

from __future__ import annotations

import multiprocessing
import pickle
import signal
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from time import sleep
from types import FrameType
from typing import Any

import pytest

import lazyckpt as lz
from lazyckpt import tracking
from tests.helpers import Costly
from tests.state.cases import signed

LETTERS = lz.source([*"abcdefgh"])


def taken(tracked: lz.types.Tracked[Any], count: int) -> list[lz.types.Ticket]:
    return [ticket for ticket, _ in islice(tracked, count)]


def rest(pipeline: Any, state: Any, **options: Any) -> list[Any]:
    """The items of a resume, each finished immediately."""
    found = []
    tracked = lz.tracked(lz.run(pipeline, **options), state, max_in_flight=1)
    for ticket, item in tracked:
        found.append(item)
        tracked.ack(ticket)
    return found


def test_each_bad_ticket_is_named_differently() -> None:
    tracked = lz.tracked(lz.run(LETTERS), max_in_flight=4)
    other = lz.tracked(lz.run(LETTERS), max_in_flight=4)
    used, given_back, good = taken(tracked, 3)
    tracked.ack(used)
    tracked.nack(given_back)
    for ticket, why in (
        (used, r"is used up: item 0 is finished"),
        (given_back, r"out of date: item 1 was returned, and is delivered again"),
        (next(other)[0], r"belongs to a different run"),
        (good._replace(number=77), r"was never issued"),
        (good._replace(attempt=1), r"was never issued"),
        (good._replace(number=-1), r"was never issued"),
        ("ticket", r"ack: 'ticket' is not a ticket"),
        ((1, 2, 3, 4), r"is not a ticket"),
        (None, r"ack: None is not a ticket"),
    ):
        with pytest.raises(lz.errors.TicketError, match=why):
            tracked.ack(ticket)  # type: ignore[arg-type]
    resumed = lz.tracked(lz.run(LETTERS), tracked.state, max_in_flight=4)
    with pytest.raises(
        lz.errors.TicketError, match=r"from before a resume: unless .* item 2 is delivered again"
    ):
        resumed.ack(good)
    tracked.ack(good)
    assert tracked.in_flight == 1


def test_a_ticket_goes_through_pickle_and_another_process() -> None:
    tracked = lz.tracked(lz.run(LETTERS, executor=lz.threads(2)), max_in_flight=8)
    tickets = taken(tracked, 8)
    assert pickle.loads(pickle.dumps(tickets)) == tickets
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        for ticket in pool.map(_same, tickets):
            tracked.ack(ticket)
    assert next(tracked, None) is None
    tracked.close()


def _same(ticket: lz.types.Ticket) -> lz.types.Ticket:
    return ticket


def test_many_threads_finish_items() -> None:
    pipeline = lz.source(range(600)) | lz.shuffle(16, seed=0)
    found = []
    with (
        lz.tracked(lz.run(pipeline), max_in_flight=7) as tracked,
        ThreadPoolExecutor(8) as pool,
    ):
        for ticket, item in tracked:  # it ends when all are finished
            assert tracked.in_flight <= 7
            found.append(item)
            pool.submit(tracked.ack, ticket)
        assert tracked.in_flight == 0
    assert found == list(pipeline)
    assert tracked.state.base == lz.state_at(pipeline, 600)


def test_many_threads_take_items() -> None:
    tracked = lz.tracked(lz.run(lz.source(range(500))), max_in_flight=5)
    found: list[int] = []

    def work() -> None:
        for ticket, item in tracked:
            if item % 7 == 3 and not ticket.attempt:
                tracked.nack(ticket)
            else:
                found.append(item)
                tracked.ack(ticket)

    with ThreadPoolExecutor(4) as pool:
        for each in [pool.submit(work) for _ in range(4)]:
            each.result()
    assert sorted(found) == list(range(500))


def test_the_next_item_is_waited_for() -> None:
    tracked = lz.tracked(lz.run(LETTERS), max_in_flight=2)
    tickets = taken(tracked, 2)
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(next(tracked)))
    thread.start()
    sleep(0.05)
    assert not found
    tracked.ack(tickets[0])
    thread.join()
    assert found[0][1] == "c"


def test_who_waits_gets_an_error_when_it_is_closed() -> None:
    tracked = lz.tracked(lz.run(LETTERS), max_in_flight=1)
    taken(tracked, 1)
    errors: list[BaseException] = []

    def wait() -> None:
        try:
            next(tracked)
        except lz.PipelineError as error:
            errors.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    sleep(0.05)  # so that it waits
    tracked.close()
    thread.join()
    assert "the tracked run is closed; enter it again" in str(errors[0])


def test_ctrl_c_ends_the_wait() -> None:
    tracked = lz.tracked(lz.run(LETTERS), max_in_flight=1)
    (ticket,) = taken(tracked, 1)

    main = threading.get_ident()

    def interrupt() -> None:
        sleep(0.05)  # so that it waits
        signal.pthread_kill(main, signal.SIGINT)

    thread = threading.Thread(target=interrupt)

    def wait() -> None:
        thread.start()
        next(tracked)

    with pytest.raises(KeyboardInterrupt):
        wait()
    thread.join()
    tracked.ack(ticket)
    assert next(tracked)[1] == "b"


def test_no_longer_than_max_wait() -> None:
    tracked = lz.tracked(lz.run(LETTERS), max_in_flight=2, max_wait=0)
    tickets = taken(tracked, 2)
    with pytest.raises(
        lz.errors.TooManyInFlight, match=r"2 items .*max_in_flight=2.*the oldest is item 0"
    ):
        next(tracked)
    for ticket in tickets:
        tracked.ack(ticket)
    for ticket, _ in islice(tracked, 5):
        tracked.ack(ticket)
    (last,) = taken(tracked, 1)
    with pytest.raises(
        lz.errors.TooManyInFlight, match=r"1 items .*the stream has ended.*is item 7"
    ):
        next(tracked)
    tracked.nack(last)
    again, item = next(tracked)
    assert item == "h"
    tracked.ack(again)
    assert next(tracked, None) is None


def test_finished_items_are_not_made_again_where_there_is_random_access() -> None:
    data = Costly(1000)
    pipeline = lz.source(data) | lz.shuffle(seed=0)
    tracked = lz.tracked(lz.run(pipeline), max_in_flight=200)
    tickets = taken(tracked, 200)
    for number in range(1, 200, 2):
        tracked.ack(tickets[number])
    state = tracked.state
    assert len(state.to_json()) < 200 + 10 * 100
    data.read.clear()
    resumed = lz.tracked(lz.run(pipeline), state, max_in_flight=101)
    found = [item for _, item in islice(resumed, 101)]
    assert len(data.read) == 101
    assert found == [*islice(pipeline, 0, 200, 2), pipeline[200]]


def test_errors_lose_nothing() -> None:
    fails = [True]

    def once(item: str) -> str:
        if item == "c" and fails:
            fails.clear()
            raise ValueError("once")
        return item

    tracked = lz.tracked(lz.run(LETTERS | lz.map(once)), max_in_flight=9)
    taken(tracked, 2)
    with pytest.raises(ValueError, match="once"):
        next(tracked)
    assert [item for _, item in islice(tracked, 3)] == [*"cde"]


def test_a_run_that_another_moves_is_noticed() -> None:
    run = lz.run(LETTERS)
    tracked = lz.tracked(run, max_in_flight=9)
    taken(tracked, 2)
    assert [next(run), next(run)] == ["c", "d"]
    with pytest.raises(
        lz.PipelineError, match=r"from item 2 to 5: it is reserved for the tracked run"
    ):
        next(tracked)
    assert [item for _, item in islice(tracked, 3)] == [*"cde"]


def test_it_begins_where_the_run_is_or_at_a_plain_state() -> None:
    run = lz.run(LETTERS)
    next(run)
    assert next(lz.tracked(run, max_in_flight=1))[1] == "b"
    assert rest(LETTERS, lz.state_at(LETTERS, 6)) == ["g", "h"]
    tracked = lz.tracked(lz.run(LETTERS), max_in_flight=3)
    taken(tracked, 3)
    tracked.load_state_dict(lz.state_at(LETTERS, 4).to_json())
    assert next(tracked)[1] == "e"


def test_a_state_of_another_pipeline_is_refused() -> None:
    tracked = lz.tracked(lz.run(LETTERS), max_in_flight=2)
    state = tracked.state
    with pytest.raises(lz.StateMismatch, match="length=8"):
        lz.tracked(lz.run(lz.source(range(3))), state, max_in_flight=2)
    assert lz.tracked(lz.run(LETTERS), state, max_in_flight=2).state.finished == ()


def test_only_tracked_goes_on_from_its_state() -> None:
    tracked = lz.tracked(lz.run(LETTERS), max_in_flight=4)
    tracked.ack(taken(tracked, 4)[2])
    state = tracked.state
    for take in (lz.run, lz.step, lz.rebase, lz.resume_cost):
        with pytest.raises(lz.InvalidState, match=r"1 items finished after item 0; .*tracked"):
            take(LETTERS, state) if take is not lz.rebase else take(state, LETTERS)
    assert list(lz.run(LETTERS, state.base)) == [*"abcdefgh"]
    assert state != state.base
    assert state.base != state


def test_its_state_goes_where_states_go(tmp_path: Path) -> None:
    tracked = lz.tracked(lz.run(LETTERS), max_in_flight=4)
    tracked.ack(taken(tracked, 4)[2])
    state = tracked.state
    lz.save(tracked, tmp_path / "data.json")
    for found in (
        lz.load(tmp_path / "data.json"),
        pickle.loads(pickle.dumps(state)),
        lz.State.from_dict(tracked.state_dict()),
        lz.State.from_dict(state.to_dict()),
    ):
        assert found == state
        assert rest(LETTERS, found) == [*"abdefgh"]


@pytest.mark.parametrize(
    "finished",
    [[[2, 1]], [[1, 3], [3, 4]], [[1, 1]], [[-1, 2]], [[1]], [1], [["a", "b"]], {}, [[1.0, 2.0]]],
)
def test_what_is_no_account_of_finished_items(finished: Any) -> None:
    found = lz.tracked(lz.run(LETTERS), max_in_flight=4).state.to_dict()
    assert lz.State.from_json(signed(found, tracked=["name", [[2, 3]]]))
    with pytest.raises(lz.InvalidState, match=r"not a record of finished items|malformed"):
        lz.State.from_json(signed(found, tracked=["name", finished]))


def test_finished_items_that_are_gone() -> None:
    state = lz.types.TrackedState(lz.state_at(LETTERS, 6), "name", ((0, 1), (50, 60)))
    tracked = lz.tracked(lz.run(LETTERS), state, max_in_flight=4)
    assert next(tracked)[1] == "h"
    far = lz.types.TrackedState(lz.state_at(LETTERS, 6), "name", ((0, 10),))
    for pipeline in (LETTERS, lz.source([*"abcdefgh"]) | lz.filter(bool)):
        there = lz.types.TrackedState(lz.state_at(pipeline, 6), "name", far.finished)
        with pytest.raises(lz.SourceChanged, match="finished items up to 16"):
            next(lz.tracked(lz.run(pipeline), there, max_in_flight=4))


def test_bad_arguments() -> None:
    run: Any = lz.run(LETTERS)
    for wrong, message in (
        ({"max_in_flight": 0}, "max_in_flight must be an int >= 1"),
        ({"max_in_flight": 1, "timeout": 0}, "timeout must be a number above 0"),
        ({"max_in_flight": 1, "max_wait": -1}, "max_wait must be a number >= 0"),
        ({"max_in_flight": 1, "clock": 3}, "clock must be"),
    ):
        with pytest.raises(lz.PipelineError, match=message):
            lz.tracked(run, **wrong)
    with pytest.raises(TypeError, match=r"run must be a Run, .*write tracked\(lazyckpt.run"):
        lz.tracked(LETTERS, max_in_flight=1)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="pickle its state or tickets"):
        pickle.dumps(lz.tracked(run, max_in_flight=1))


@pytest.mark.parametrize("executor", [None, lz.threads(2)])
@pytest.mark.parametrize("stage", [lz.shuffle(seed=0), lz.filter(bool)])
def test_a_run_passes_over_items(stage: Any, executor: Any) -> None:
    pipeline = lz.source(range(1, 301)) | stage
    with lz.run(pipeline, executor=executor) as run:
        expected, found = list(pipeline), [next(run)]
        for count in (0, 3, 100, 9):
            run.advance(count)
            assert run.state == lz.state_at(pipeline, run.state.items)
            found.append(next(run))
        assert found == [expected[n] for n in (0, 1, 5, 106, 116)]
        with pytest.raises(IndexError, match="n=200, but only 183 items are left"):
            run.advance(200)


@pytest.mark.parametrize("executor", [lz.threads(2), lz.processes(2)])
def test_workers_go_on_behind_what_is_finished(executor: Any) -> None:
    pipeline = lz.source(range(300)) | lz.map(abs)
    state = lz.types.TrackedState(lz.state_at(pipeline, 1), "name", ((2, 5), (8, 150), (151, 152)))
    with lz.tracked(lz.run(pipeline, executor=executor), state, max_in_flight=9) as tracked:
        found = []
        for ticket, item in islice(tracked, 9):
            found.append(item)
            tracked.ack(ticket)
        assert found == [1, 2, 6, 7, 8, 151, 153, 154, 155]
        assert tracked.state.base == lz.state_at(pipeline, 156)


@pytest.mark.parametrize("stage", [lz.shuffle(seed=0), lz.filter(bool)])
def test_an_interrupt_at_any_line_loses_nothing(stage: Any) -> None:
    """Items delivered or in flight are all there is; and nothing else is finished."""
    pipeline = lz.source(range(1, 13)) | stage
    expected = list(pipeline)
    for line in range(1, 500):
        tracked = lz.tracked(lz.run(pipeline), max_in_flight=50, max_wait=0)
        resumed = lz.types.TrackedState(lz.init(pipeline), "name", ((1, 3), (4, 5)))
        tracked.load_state_dict(resumed)
        given = {0: next(tracked)[0]}
        was_interrupted = False
        try:
            with interrupting(line):
                for ticket, _ in islice(tracked, 3):
                    given[ticket.number] = ticket
        except KeyboardInterrupt:
            was_interrupted = True
        with suppress(lz.errors.TooManyInFlight):  # at the end of the stream
            for ticket, item in tracked:
                assert item == expected[ticket.number]
                given[ticket.number] = ticket
        for ticket in given.values():
            tracked.ack(ticket)
        left = rest(pipeline, tracked.state)
        wanted = [n for n in range(12) if n not in {1, 2, 4} and n not in given]
        assert left == [expected[n] for n in wanted]
        assert len(wanted) <= was_interrupted
        if not was_interrupted:
            return
    raise AssertionError("no end of lines")


@contextmanager
def interrupting(line: int) -> Iterator[None]:
    """A Ctrl-C at the n-th line of the module that is run."""
    left = line

    def trace(frame: FrameType, event: str, arg: object) -> Any:
        nonlocal left
        if frame.f_code.co_filename != tracking.__file__:
            return None
        left -= event == "line"
        if left == 0 and event == "line":
            raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)
