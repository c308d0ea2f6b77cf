"""`to_device` in the tests of the core's other executors."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

import lazyckpt as lz
from lazyckpt.testing import strategies
from tests.executors.cases import Stream, like_inline
from tests.executors.plan.test_ahead import sentence
from tests.executors.table import NAMES, ROWS
from tests.executors.test_closing import FILES, closes_files
from tests.executors.test_signals import STAGES, goes_on_after_interrupts
from tests.explanation.test_explain import (
    have_numbers_and_places,
    long,
    reads_and_starts_nothing,
    wide,
)
from tests.explanation.test_warnings import NUMBERS, warned

ARRAYS = ("arrays", "dicts", "of arrays", "expanded in parts")
CPU = lz.to_device(lz.threads(), "cpu")


@pytest.mark.parametrize("row", ROWS, ids=NAMES)
def test_states_are_inlines(row: Any) -> None:
    (name, pipeline), on_error = row
    if "large" not in name and name not in ARRAYS:  # no tensors
        like_inline(pipeline, CPU, 20, on_error)


@given(strategies.pipelines())
def test_every_stage_has_its_number_and_place(pipeline: lz.Pipeline[Any]) -> None:
    have_numbers_and_places(pipeline, [lz.to_device(lz.threads(2), "cpu")])


@pytest.mark.parametrize("made", [long, wide])
def test_it_reads_nothing_and_starts_nothing(made: Any) -> None:
    reads_and_starts_nothing(made, [lz.to_device(lz.threads(2), "cpu")])


@pytest.mark.parametrize("inner", [lz.threads(2), lz.inline()], ids=repr)
@pytest.mark.parametrize("files", FILES)
def test_closing_closes_files(files: str, inner: lz.Executor, tmp_path: Path) -> None:
    closes_files(files, lz.to_device(inner, "cpu"), tmp_path)


def test_the_memory_is_that_of_its_executor() -> None:
    plain = lz.source(Stream(9)) | lz.map(str)
    assert sentence(plain, lz.to_device(lz.threads(2), "cpu")) == sentence(plain, lz.threads(2))


def test_a_function_without_a_name_is_warned_of_where_no_worker_gets_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    executor = lz.to_device(lz.processes(2, start_method="spawn"), "cuda")
    text = "<lambda> in map has no name that a worker can import"
    assert text in warned(NUMBERS | lz.map(lambda x: x), executor)


@pytest.mark.parametrize("stage", STAGES)
def test_interrupts_at_any_moment(stage: str, tmp_path: Path) -> None:
    goes_on_after_interrupts("lz.to_device(lz.inline(), 'cpu')", stage, tmp_path)
