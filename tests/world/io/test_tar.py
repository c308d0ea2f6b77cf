"""Tar files of webdataset."""

from __future__ import annotations

import numpy as np
import pytest
import webdataset

import lazyckpt as lz
from tests.io.cases import folder


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # its open file
def test_samples_are_those_of_webdataset() -> None:
    place = folder()
    with webdataset.TarWriter(f"{place}/a.tar") as sink:
        for n in range(20):
            sink.write({"__key__": f"x/{n:03}", "txt": f"{n}", "npy": np.arange(n), "A.B": b"c"})
    found = list(lz.io.read_tar(f"{place}/a.tar"))
    theirs = webdataset.WebDataset(f"{place}/a.tar", shardshuffle=False, empty_check=False)
    assert found == [
        {name: value for name, value in each.items() if name not in ("__url__", "__local_path__")}
        for each in theirs
    ]
