"""Rows of data frames in an order of their own."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pandas as pd
import pytest

import lazyckpt as lz


def frame() -> pd.DataFrame:
    return pd.DataFrame({"a": range(300), "b": [str(each) for each in range(300)]})


def series() -> pd.Series[int]:
    return pd.Series(range(300))


@pytest.mark.filterwarnings("ignore:The inplace keyword")
@pytest.mark.parametrize("make", [frame, series])
def test_rows_of_frames(make: Any) -> None:
    data = make()
    plain = list(lz.source(data))
    order = list(lz.source(range(300)) | lz.shuffle(seed=0))
    pipeline = lz.source(data) | lz.shuffle(seed=0)
    assert list(pipeline) == [plain[index] for index in order]
    run = lz.run(pipeline)
    assert len([*islice(run, 30)]) == 30
    data.drop(data.index[200:], inplace=True)
    with pytest.raises(lz.SourceChanged):
        list(run)
