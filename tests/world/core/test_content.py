"""Arguments of others' types, by contents."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch

import lazyckpt as lz
from lazyckpt.core.content import content, dumps
from tests.core.test_content import DATA, MADE

VALUES: list[Any] = [
    torch.arange(3), torch.arange(1, 4), torch.arange(3.0), torch.arange(4).reshape(2, 2),
    torch.arange(4), torch.tensor([1.5, 2], dtype=torch.bfloat16), torch.tensor(True),
    torch.tensor([1.5, 3], dtype=torch.bfloat16), torch.tensor(3), torch.tensor(4),
    torch.tensor(False), torch.tensor([]), torch.tensor([1j, 2]).conj(), torch.tensor([1j, 2]),
    torch.int8, torch.int16, torch.device("cpu"), torch.device("cuda"), torch.Size([1, 2]),
    pd.Timestamp("2020-01-01"), pd.Timestamp("2020-01-02"), pd.Timedelta(1, "s"),
    pd.Interval(0, 1), pd.Interval(0, 2),
]  # fmt: skip


def test_other_values_have_other_contents() -> None:
    found = [dumps(content(value)) for value in VALUES]
    assert len({*found}) == len(found)


@pytest.mark.parametrize("made", [*MADE, lambda value: lz.map(max, value)])
def test_a_changed_tensor_is_another_pipeline(made: Any) -> None:
    weights = torch.arange(6.0, requires_grad=True)
    state = lz.init(DATA | made(weights)).to_json()
    for same in (weights.detach().clone(), torch.arange(12.0)[::2] / 2):
        assert lz.run(DATA | made(same), state).state.to_json() == state
    with pytest.raises(lz.StateMismatch):
        lz.run(DATA | made(torch.ones(6)), state)


TABLES: list[Any] = [
    make(column)
    for make in (
        pd.Series, lambda column: pd.DataFrame({"a": column}), pd.Index, pl.Series, pa.array,
        lambda column: pd.DataFrame({"b": column}), lambda column: pl.DataFrame({"a": column}),
        lambda column: pa.table({"a": column}), lambda column: pd.Series(column, index=column),
    )
    for column in ([1, 2, 3], [1, 2, 4], [1.0, 2, 3], ["a", "b", "c"], ["a", "b", None])
]  # fmt: skip


class Sub(pd.DataFrame):
    """A frame of a class of one's own."""


def test_frames_are_compared_by_contents() -> None:
    found = [dumps(content(value)) for value in TABLES]
    assert len({*found}) == len(found)
    assert [dumps(content(value)) for value in pickle.loads(pickle.dumps(TABLES))] == found
    assert content(pd.DataFrame()) != content(pd.DataFrame(index=[1]))
    named = [Sub({"a": [1, 2]}, index=index) for index in ([0, 1], [0, 2])]
    assert content(named[0]) != content(named[1])
    wide = pd.DataFrame(np.eye(2), columns=["a", "a"])
    assert content(wide) == content(wide.copy()) != content(wide + 1)


@pytest.mark.parametrize("made", [*MADE, lambda value: lz.filter(max, value)])
@pytest.mark.parametrize("number", range(0, len(TABLES), 5))
def test_a_changed_frame_is_another_pipeline(made: Any, number: int) -> None:
    one, other = TABLES[number : number + 2]
    same = pickle.loads(pickle.dumps(one))
    state = lz.init(DATA | made(one)).to_json()
    assert DATA | made(same) == DATA | made(one) != DATA | made(other)
    assert lz.run(DATA | made(same), state).state.to_json() == state
    with pytest.raises(lz.StateMismatch):
        lz.run(DATA | made(other), state)


def test_what_has_no_bytes_is_refused() -> None:
    for value in (torch.eye(2).to_sparse(), torch.empty(2, device="meta")):
        with pytest.raises(lz.ArgumentError, match="isn't: give"):
            DATA | MADE[0](value)
