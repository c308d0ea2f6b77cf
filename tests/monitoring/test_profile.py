"""`profile`: counts, times and waits of stages, wherever they run."""

from __future__ import annotations

import json
import pickle
import random
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from itertools import islice
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lazyckpt as lz
from lazyckpt.monitoring.report import said_rate
from lazyckpt.timers.timed import TimerCosts
from tests.executors.cases import PIPELINES, Stream, odd, square
from tests.helpers import Costly, printed_without, workers

EXECUTORS = [None, lz.inline(), lz.threads(2), lz.processes(1), lz.processes(2)]


def counted(profile: lz.types.Profile) -> dict[str, int]:
    return {stage.name: stage.items for stage in profile.stages}


def waits(x: int) -> int:
    sleep(0.003)
    return x


def waits_long(x: int) -> int:
    sleep(0.02)
    return x


def works(x: int) -> int:
    return sum(range(20_000)) and x


def twice(x: int) -> list[int]:
    return [x, x]


@pytest.mark.parametrize("name", PIPELINES)
def test_items_are_those_of_a_run(name: str) -> None:
    pipeline = PIPELINES[name]
    items = [*lz.run(pipeline)]
    for n in (1, 2, len(items), 100):
        found = lz.profile(pipeline, n)
        assert found.items == found.stages[-1].items == min(n, len(items))
        assert [stage.name for stage in found.stages] == [*map(repr, pipeline.calls)]


@pytest.mark.parametrize("executor", EXECUTORS, ids=repr)
def test_every_executor_tells_what_its_workers_made(executor: lz.Executor | None) -> None:
    words = lz.source(range(20)) | lz.shuffle(seed=0) | lz.map(square) | lz.flat_map(twice)
    pipeline = words | lz.filter(odd) | lz.batch(2, collate=sum)
    found = lz.profile(pipeline, executor=executor)
    assert found.items == 10
    assert [*counted(found).values()] == [20, 20, 20, 40, 20, 10]
    assert all(stage.seconds >= stage.working >= 0 for stage in found.stages)
    assert found.seconds >= found.first > 0
    assert found.workers
    assert all(len(each.stages) == 6 for each in found.workers)


@pytest.mark.parametrize("executor", [None, lz.threads(2)], ids=repr)
def test_joined_pipelines_have_stages_of_their_own(executor: lz.Executor | None) -> None:
    one = lz.source(range(8)) | lz.map(square)
    pipeline = lz.zip(one, one | lz.map(odd)) | lz.batch(2)
    found = lz.profile(pipeline, executor=executor)
    assert [(stage.depth, stage.items) for stage in found.stages] == [
        *[(1, 8)] * 5,
        (0, 8),
        (0, 4),
    ]
    assert found.stages[-2].name == "zip(...)"


@given(st.integers(0, 20), st.integers(1, 20))
def test_it_reads_no_more_than_a_run_and_begins_at_a_state(begin: int, n: int) -> None:
    read: list[int] = []

    def note(x: int) -> int:
        read.append(x)
        return x

    pipeline = lz.source(range(20)) | lz.map(note) | lz.filter(odd)
    state = lz.state_at(pipeline, begin // 2)
    read.clear()
    expected = [*islice(lz.run(pipeline, state), n)]
    by_run = read.copy()
    read.clear()
    before = state.to_json()
    found = lz.profile(pipeline, n, state=state)
    assert (found.items, read, state.to_json()) == (len(expected), by_run, before)


def test_what_shard_passes_over_is_not_made_either() -> None:
    called: list[int] = []
    stream = lz.source(Stream(9)) | lz.tap(called.append) | lz.map(tokens)
    rows = stream | lz.pack_first_fit(4, num_bins=1)
    mine = lz.shard(num_shards=3, index=1)
    assert [*counted(lz.profile(stream | mine, 9)).values()] == [9, 3, 3, 3]
    assert called == [1, 4, 7]
    assert [*counted(lz.profile(rows | mine, 9)).values()] == [9, 9, 9, 3, 3]


def tokens(x: int) -> list[int]:
    return [x] * 4


def test_of_quick_stages_some_items_are_timed_and_each_is_read_once() -> None:
    read = 0

    def note(x: int) -> int:
        nonlocal read
        read += 1
        return x

    found = lz.profile(lz.source(range(200_000)) | lz.map(note) | lz.batch(2), 10**6)
    assert (found.items, read) == (100_000, 200_000)
    assert sum(len(spans) for *_, spans in found.spans) < 100_000
    for stage, expected in zip(found.stages, (200_000, 200_000, 100_000), strict=True):
        assert abs(stage.items - expected) <= 0.01 * expected
    total = sum(stage.seconds for stage in found.stages)
    assert total == pytest.approx(found.seconds)


def test_timers_that_seem_to_cost_more_than_all_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine that was slower while their cost was measured."""
    monkeypatch.setattr("lazyckpt.monitoring.profile.timer_costs", lambda: TimerCosts(1.0, 1.0))
    found = lz.profile(lz.source(range(200_000)) | lz.map(square) | lz.batch(2), 10**6)
    total = sum(stage.seconds for stage in found.stages)
    assert total == pytest.approx(found.seconds)


# By fork, as a program's first start of a server takes long, and is timed as long again.
@pytest.mark.parametrize(
    "executor", [lz.threads(2), lz.processes(2, start_method="fork")], ids=repr
)
def test_of_what_workers_make_quickly_some_items_are_timed(
    executor: lz.Executor,
) -> None:
    pipeline = lz.source(range(400_000)) | lz.map(square) | lz.batch(2)
    found = lz.profile(pipeline, 10**6, executor=executor)
    assert found.items == 200_000
    assert sum(len(spans) for *_, spans in found.spans) < 200_000  # of a million
    for stage, expected in zip(found.stages, (400_000, 400_000, 200_000), strict=True):
        assert abs(stage.items - expected) <= 0.05 * expected
    assert all(worker.seconds <= 1.01 * found.seconds for worker in found.workers)


@pytest.mark.parametrize("is_dear", [True, False], ids=["timers are dear", "timers are cheap"])
def test_where_a_resume_takes_longer_than_timers_all_items_are_timed(
    is_dear: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = 0

    def note(x: int) -> int:
        nonlocal read
        read += 1
        return x

    pipeline = lz.source(Stream(90_000)) | lz.map(note) | lz.shuffle(500, seed=0)
    state = lz.state_at(pipeline, 80_000)
    again = lz.resume_cost(pipeline, state).stages[-1].items
    read = 0
    costs = TimerCosts(1.0, 1.0) if is_dear else TimerCosts(1e-7, 1e-7)
    monkeypatch.setattr("lazyckpt.monitoring.profile.timer_costs", lambda: costs)
    found = lz.profile(pipeline, 9_000, state=state)
    assert found.items == 9_000
    if is_dear:  # a sample, and again the items that the next run has to read first
        assert 9_000 + again < read < 9_000 + 3 * again
    else:
        assert [*counted(found).values()] == [read, read, 9_000]
        assert read == 9_000 + again


def test_quick_items_that_are_made_by_who_reads_them_are_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    costs = TimerCosts(1e-7, 1e-7)  # on a busy machine a part might be measured alone
    monkeypatch.setattr("lazyckpt.monitoring.profile.timer_costs", lambda: costs)
    one = lz.source(Costly(4_000)) | lz.map(square) | lz.filter(bool)
    pipeline = lz.mix([one, one], [1, 1], seed=0) | lz.batch(8)
    expected = [*pipeline]
    found = lz.profile(pipeline, len(expected), executor=lz.processes(2))
    assert found.items == len(expected)
    assert found.stages[-2].items == sum(map(len, expected))


class Clock:
    """One that only its own functions move on."""

    def __init__(self) -> None:
        self.now = self.worked = 0.0

    def waits(self, x: int) -> int:
        self.now += 3e-3
        return x

    def works(self, x: int) -> int:
        self.worked += 3e-3
        return self.waits(x)

    def sums(self, total: int, x: int) -> tuple[int, int]:
        return total + x, self.waits(x)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("lazyckpt.monitoring.profile.timer_costs", lambda: TimerCosts(1e-7, 1e-7))
    for module in ("monitoring.profile", "timers.timings", "timers.timed"):
        monkeypatch.setattr(f"lazyckpt.{module}.perf_counter", lambda: clock.now)
    for module in ("monitoring.profile", "timers.timings"):
        monkeypatch.setattr(f"lazyckpt.{module}.thread_time", lambda: clock.worked)
    return clock


def test_the_stage_that_takes_the_time_is_named_with_a_remedy(clock: Clock) -> None:
    data = lz.source(range(40))
    waiting = lz.profile(data | lz.map(clock.waits) | lz.batch(2))
    assert waiting.stages[1].waiting == pytest.approx(0.12, rel=0.01)
    assert re.match(r"map\(.*\) takes 100% of the time, mostly waiting", waiting.bottleneck)
    assert "lz.threads(" in waiting.bottleneck
    working = lz.profile(data | lz.batch(2) | lz.unbatch() | lz.map(clock.works))
    assert working.stages[-1].working == pytest.approx(0.12, rel=0.01)
    assert re.match(r"map\(.*\) takes 100% .* executor=lz.processes", working.bottleneck)
    in_order = lz.profile(lz.source(Stream(40)) | lz.scan(clock.sums, 0))
    assert "serially" in in_order.bottleneck
    quick = lz.profile(data | lz.map(abs))
    assert "cost more than they save" in quick.bottleneck
    assert lz.profile(data | lz.filter(bool) | lz.take(0)).bottleneck.startswith("nothing")


@pytest.mark.parametrize(("count", "is_advised"), [(1, False), (6, False), (7, True)])
def test_what_takes_less_than_20_ms_in_all_gets_no_advice(
    count: int, is_advised: bool, clock: Clock
) -> None:
    found = lz.profile(lz.source(range(40)) | lz.map(clock.waits), count)
    assert ("executor=lz.threads(" in found.bottleneck) == is_advised
    assert ("too short to judge" in found.bottleneck) != is_advised


def test_real_clocks_tell_waiting_from_working() -> None:
    found = lz.profile(lz.source(range(40)) | lz.map(waits) | lz.map(works))
    assert found.stages[1].waiting > 0.1
    assert found.stages[2].working > 0


def test_workers_that_wait_are_busy_and_those_for_large_items_are_not() -> None:
    busy = lz.profile(lz.source(range(100)) | lz.map(waits_long), executor=lz.threads(2))
    assert len(busy.workers) == 2
    assert "more workers help" in busy.bottleneck
    assert sum(each.seconds for each in busy.workers) > busy.seconds


def test_threads_are_not_told_that_they_send() -> None:
    found = lz.profile(lz.source(range(200_000)) | lz.map(square), executor=lz.threads(2))
    assert "send" not in found.bottleneck


def test_for_seconds_it_reads_as_long() -> None:
    forever = lz.source(range(5)) | lz.repeat() | lz.map(waits)
    for executor in (None, lz.threads(2)):
        begun = perf_counter()
        found = lz.profile(forever, seconds=0.1, executor=executor)
        assert perf_counter() - begun >= 0.1
        assert found.items > 0


def test_an_error_is_that_of_a_run_and_nothing_is_left() -> None:
    def fails(x: int) -> int:
        if x == 7:
            raise ValueError("seven")
        return x

    for executor in (None, lz.threads(2)):
        with pytest.raises(ValueError, match="seven") as caught:
            lz.profile(lz.source(range(9)) | lz.map(fails), executor=executor)
        assert any("map(" in note for note in caught.value.__notes__)
        assert lz.profile(lz.source(range(9)) | lz.map(square)).items == 9
    assert not workers()


def test_in_a_function_of_a_pipeline_it_measures_its_own() -> None:
    def inner(x: int) -> int:
        return lz.profile(lz.source(range(x)) | lz.map(square)).items

    found = lz.profile(lz.source(range(1, 4)) | lz.map(inner))
    assert [*counted(found).values()] == [3, 3]


@pytest.mark.parametrize("executor", ["None", "lz.threads(2)", "lz.processes(2)"])
def test_an_interrupt_is_raised_and_no_worker_is_left(executor: str) -> None:
    code = (
        "import time, lazyckpt as lz\nfrom tests.helpers import workers\n"
        "def slow(x):\n    print(x, flush=True)\n    time.sleep(0.05)\n    return x\n"
        "if __name__ == '__main__':\n"
        "    try:\n"
        f"        lz.profile(lz.source(range(10**6)) | lz.map(slow), 10**6, executor={executor})\n"
        "    except KeyboardInterrupt:\n"
        "        print('interrupted', workers(), flush=True)\n"
    )
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, text=True, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        lines = iter(process.stdout)
        next(lines)
        process.send_signal(signal.SIGINT)
        assert "interrupted []\n" in lines
    assert process.returncode == 0


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)


class Rude:
    def __init__(self, text: str) -> None:
        self.text = text

    def __call__(self, x: int) -> int:
        return x

    def __repr__(self) -> str:
        return self.text


RUDE = ["<script>alert(1)</script>", "‮abc", "x" * 10**6, "$\\bad{$"]


@pytest.mark.parametrize("text", RUDE)
def test_names_are_escaped_and_cut(text: str) -> None:
    pipeline = lz.source(range(3)) | lz.map(Rude(text))
    found = lz.profile(pipeline)
    page = _Page()
    page.feed(found._repr_html_())
    assert {*page.tags} <= {"div", "span", "bdi", "style"}
    assert all(line.isprintable() for line in str(found).splitlines())
    assert max(map(len, str(found).splitlines())) < 200
    assert pickle.loads(pickle.dumps(found)) == found


@pytest.mark.parametrize("executor", [None, lz.processes(2)], ids=repr)
def test_the_trace_has_a_span_for_each_call(executor: lz.Executor | None, tmp_path: Path) -> None:
    found = lz.profile(lz.source(range(8)) | lz.map(waits) | lz.batch(2), executor=executor)
    found.to_chrome_trace(tmp_path / "trace.json")
    trace = json.loads((tmp_path / "trace.json").read_text())
    assert trace == found.chrome_trace()
    events = trace["traceEvents"]
    named = {_thread(each) for each in events if each["ph"] == "M"}
    calls = [each for each in events if each["name"] == "map(waits)" and _thread(each) in named]
    assert sum(each["dur"] > 2_900 for each in calls) >= 8  # a busy machine makes others long
    assert min(each["ts"] for each in events if each["ph"] == "X") == 0
    for thread in named:  # each span lies within or next to any other
        spans = [each for each in events if each["ph"] == "X" and _thread(each) == thread]
        assert not [*_crossing(spans)]


def _thread(event: dict[str, Any]) -> tuple[int, int]:
    return event["pid"], event["tid"]


def _crossing(events: list[dict[str, Any]]) -> Iterator[tuple[Any, Any]]:
    spans = sorted(
        ((each["ts"], each["ts"] + each["dur"]) for each in events),
        key=lambda span: (span[0], -span[1]),
    )
    for n, (_, end) in enumerate(spans):
        for begin, other in spans[n + 1 : n + 20]:
            if begin < end - 0.002 and other > end + 0.002:
                yield (end, begin, other), events[n]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n": 0}, "n must be"),
        ({"n": None}, "n must be"),
        ({"seconds": 0}, "seconds must be"),
        ({"executor": 3}, "executor must be"),
    ],
)
def test_arguments_are_checked(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(lz.ArgumentError, match=message):
        lz.profile(**{"pipeline": lz.source([1])} | arguments)


def test_where_stages_take_no_time_something_was_read_all_the_same() -> None:
    assert "nothing was read" in lz.profile(lz.source([])).bottleneck
    for n in (1, 100_000):
        assert "nothing was read" not in lz.profile(lz.source(range(n)), n).bottleneck


@pytest.mark.parametrize(
    ("rate", "said"), [(0.5, "0.5"), (22.22, "22.2"), (99.97, "100"), (15_851.3, "15,851")]
)
def test_a_rate_is_said_without_exponents(rate: float, said: str) -> None:
    assert said_rate(rate) == f"{said} per second"


def test_without_matplotlib_the_error_names_the_extra() -> None:
    found = printed_without("matplotlib", "lz.profile(lz.source([1])).plot()")
    assert 'pip install "lazyckpt[plot]"' in found


def test_a_resumed_run_is_as_before_though_it_was_profiled() -> None:
    pipeline = lz.source(range(30)) | lz.shuffle(8, seed=0) | lz.batch(3)
    run = lz.run(pipeline)
    first = [next(run) for _ in range(3)]
    lz.profile(pipeline, 2, state=run.state)
    assert first + [*run] == [*lz.run(pipeline)]


def dice(x: int) -> float:
    return x + random.random()


def noise(x: int) -> float:
    return x + np.random.rand()


def own_dice(x: int) -> float:
    return random.Random(x).random() + np.random.default_rng(x).random()


@pytest.mark.parametrize("executor", [None, lz.processes(2)], ids=repr)
def test_a_stage_that_draws_from_a_global_generator_is_named(executor: lz.Executor | None) -> None:
    pipeline = lz.source(range(20)) | lz.map(dice) | lz.map(str) | lz.map(float) | lz.map(noise)
    found = lz.profile(pipeline, executor=executor)
    assert [said.partition(" draws ")[0] for said in found.warnings] == ["map(dice)", "map(noise)"]
    assert "use random_map" in str(found)
    drawing = lz.random_map(lambda rng, x: x + rng.random(), seed=1)
    clean = lz.source(range(20)) | lz.shuffle(seed=0) | lz.map(own_dice) | drawing
    assert lz.profile(clean, executor=executor).warnings == ()
