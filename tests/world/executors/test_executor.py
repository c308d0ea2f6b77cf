"""Arrays and tensors come out of processes as they were made."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import lazyckpt as lz
from lazyckpt.testing import equal
from tests.executors.table import Pair

SOURCES: dict[str, lz.Pipeline[int]] = {
    "seekable": lz.source(range(37)) | lz.shuffle(seed=1),
    "stream": lz.source(range(37)) | lz.filter(lambda x: x % 5),
}


def made(rng: np.random.Generator, x: int) -> Any:
    image = rng.normal(size=(60, 70))
    return [
        Pair(image, x),
        {"a": torch.full((5000,), x), "b": [None, "text", image.T]},
        image[::2],
        np.float32(x),
        torch.tensor([x], dtype=torch.bfloat16),
    ][x % 5]


def alike(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return list(a) == list(b) and all(alike(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(alike, a, b))
    return equal(a, b)


WORKERS = [(1, True), (2, True), (2, False)]  # how many, and whether by shared memory
METHODS = {"fork": WORKERS, "forkserver": WORKERS, "spawn": WORKERS[1:2]}  # it imports torch anew


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", SOURCES)
def test_arrays_and_tensors(name: str, method: str) -> None:
    pipeline = SOURCES[name] | lz.random_map(made, seed=2)
    expected = list(lz.run(pipeline))
    for count, shared in METHODS[method]:
        executor = lz.processes(count, start_method=method, shared_memory=shared, buffer_size=6)
        with lz.run(pipeline, executor=executor) as run:
            assert all(alike(a, b) for a, b in zip(run, expected, strict=True))
            assert run.state == lz.state_at(pipeline, len(expected))
