"""`debug` and `monitor_throughput`."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyckpt.compat import seqtools as ours
from lazyckpt.compat.seqtools import instrument as instrument_module
from tests.compat.seqtools.cases import IterableTen, beside_theirs, double, theirs


@beside_theirs
@given(st.lists(st.integers(-4, 3), max_size=8), st.one_of(st.none(), st.integers(0, 5)))
def test_sq35_debug(reads: list[int], most: int | None) -> None:
    seen: dict[str, list[Any]] = {"ours": [], "theirs": []}
    mine = ours.debug("abcd", lambda i, x: seen["ours"].append((i, x)), most)
    other = theirs.instrument.debug("abcd", lambda i, x: seen["theirs"].append((i, x)), most)
    assert [mine[i] for i in reads] == [other[i] for i in reads]
    assert seen["ours"] == seen["theirs"]
    assert list(mine) == list(other)
    assert len(seen["ours"]) == len(seen["theirs"])
    assert all("abcd"[i] == x for i, x in seen["ours"])  # theirs: 0 each time


def test_sq35_debug_at_a_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 0.0, 0.4, 0.9, 1.0, 1.0, 1.6])
    monkeypatch.setattr(instrument_module, "monotonic", lambda: next(clock))
    seen: list[int] = []
    watched = ours.debug("abcd", lambda i, x: seen.append(i), max_rate=1)
    assert list(watched) == list("abcd")
    assert seen == [0, 3]


def test_sq35_monitor_throughput(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = ours.monitor_throughput(ours.smap(double, range(4)))
    with pytest.raises(RuntimeError):
        watched.read_delay()
    with pytest.raises(RuntimeError):
        watched.throughput()
    now = iter(range(100))
    monkeypatch.setattr(instrument_module, "perf_counter", lambda: next(now) / 2)
    assert (watched[1], watched[-1], list(watched), len(watched)) == (2, 6, [0, 2, 4, 6], 4)
    assert (watched.read_delay(), watched.throughput()) == (0.5, 2.0)
    watched.reset()
    with pytest.raises(RuntimeError):
        watched.read_delay()
    assert list(watched[1:3]) == [2, 4]


def test_sq35_streams() -> None:
    seen: list[int] = []
    watched = ours.debug(IterableTen(3), lambda number, item: seen.append(number))
    assert list(watched) == seen == [0, 1, 2]
    with pytest.raises(ValueError, match="no indices"):
        ours.monitor_throughput(watched)
