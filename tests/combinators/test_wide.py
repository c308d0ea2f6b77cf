"""Stages with many open inputs: what a state costs doesn't grow with their number."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

import lazyckpt as lz


def streams(count: int) -> list[lz.Pipeline[Any]]:
    return [lz.source(range(99)) | lz.filter(lambda n: True) for _ in range(count)]


WIDE: dict[str, Callable[[int], lz.Pipeline[Any]]] = {
    "concat": lambda count: lz.concat(*streams(count)),
    "mix": lambda count: lz.mix(streams(count), [1] * count, seed=0),
    "mix exactly": lambda count: lz.mix(streams(count), [1] * count, deterministic=True),
    "interleave": lambda count: lz.interleave(*streams(count)),
    "lanes": lambda count: lz.lanes(streams(count), num_shards=1, index=0),
    "multiplex": lambda count: lz.multiplex(lz.source(range(count)) | lz.repeat(), streams(count)),
    "interleave_map": lambda count: lz.source(range(count)) | lz.interleave_map(
        lambda n: lz.source(range(99)), cycle_length=count
    ),
    "pack": lambda count: lz.source([[1] * (n % 9 + 1) for n in range(9_999)])
    | lz.pack_first_fit(10, num_bins=count),
}  # fmt: skip


def calls_per_state(pipeline: lz.Pipeline[Any], warm: int) -> float:
    count, items, states = 0, 200, lz.run(pipeline).with_state()
    for _ in range(warm):
        next(states)

    def note(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        for _ in range(items):
            next(states)
    finally:
        sys.setprofile(None)
    return count / items


@pytest.mark.parametrize("name", WIDE)
def test_a_state_asks_only_the_inputs_that_were_read(name: str) -> None:
    few, many = (calls_per_state(WIDE[name](count), 2 * count) for count in (10, 200))
    assert many < 2 * few
