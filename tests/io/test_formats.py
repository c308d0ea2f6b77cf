"""Every reader, with every compression: all laws; what all of them do together."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from typing import Any

import pytest

import lazyckpt as lz
from lazyckpt.testing import equal
from tests.helpers import printed
from tests.io import laws
from tests.io.cases import check_good_rows
from tests.io.table import FORMATS, Fault, Format

pytestmark = pytest.mark.filterwarnings("ignore")  # of others' packages


@pytest.mark.parametrize(("law", "form"), laws.cases(FORMATS))
def test_laws(law: laws.Law, form: Format) -> None:
    law(form)


@pytest.mark.parametrize(
    ("form", "fault"),
    [
        pytest.param(form, fault, id=f"{name}, {number}: {fault.message}")
        for name, form in FORMATS.items()
        for number, fault in enumerate(form.faults)
    ],
)
def test_faults_are_named(form: Format, fault: Fault) -> None:
    if fault.found.rows:
        check_good_rows(laws.rows_of(form, fault.found), fault.found.rows, fault.message)
    else:
        with pytest.raises(fault.error, match=fault.message):
            laws.rows_of(form, fault.found)
    is_of_rows = "random access" in fault.message or "executor" in fault.message
    if form is FORMATS["text"] and not fault.found.rows and not is_of_rows:
        place, (name,) = laws.put(fault.found), fault.found.files
        with pytest.raises(fault.error, match=fault.message):
            list(lz.io.iter_text(f"{place}/{name}", **fault.found.given))


EXECUTORS: dict[str, Callable[[], Any]] = {
    "threads": lambda: lz.threads(3),
    "processes": lambda: lz.processes(2),
    "fork": lambda: lz.processes(2, start_method="fork"),
    "a pool of threads": lambda: lz.futures(ThreadPoolExecutor(2), buffer_size=4),
    "a pool of processes": lambda: lz.futures(
        ProcessPoolExecutor(2, multiprocessing.get_context("fork")), buffer_size=4
    ),
}


@pytest.mark.parametrize("name", EXECUTORS)
def test_workers_give_the_rows_of_all_formats(name: str) -> None:
    executor = EXECUTORS[name]()
    laws.workers_give_the_rows(FORMATS, executor)
    rows = laws.opened(FORMATS["jsonl"], executor=executor)  # which builds the index, too
    assert equal(rows[:], FORMATS["jsonl"].example.rows)


def test_states_are_those_of_another_process() -> None:
    places = [laws.put(form.example) for form in FORMATS.values()]
    code = "import lazyckpt as lz"
    for place, form in zip(places, FORMATS.values(), strict=True):
        rows = f"lz.io.{form.reader}('{place}/{form.pattern}', **{dict(form.given)})"
        code += f"\nprint(lz.state_at(lz.source({rows}), 7).to_json())"
    states = printed(code).splitlines()
    for place, form, state in zip(places, FORMATS.values(), states, strict=True):
        pipeline = lz.source(laws.opened(form, place))
        assert lz.state_at(pipeline, 7).to_json() == state
        assert equal(list(lz.run(pipeline, lz.State.from_json(state))), form.example.rows[7:])
