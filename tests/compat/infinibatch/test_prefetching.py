"""Iterators that prefetch, compared with Infinibatch's."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest
from infinibatch import iterators as old

from lazyckpt.compat.infinibatch import iterators
from tests.compat.infinibatch.cases import native, place, some, stream, through_json, until_it_fails
from tests.helpers import worker_pids


def test_ib36_prefetch_gives_what_the_source_gives() -> None:
    inner = iterators.PrefetchIterator(stream(iterators), 3)
    outer = iterators.PrefetchIterator(iterators.MapIterator(inner, np.array), 4)
    it = iterators.FixedBatchIterator(outer, 5)
    found = [[int(x) for x in batch] for batch in it]
    assert found == some(old.FixedBatchIterator(stream(old), 5))
    it.close()


@pytest.mark.parametrize("size", [1000, 5000])
@pytest.mark.parametrize("wide", [1, 2000])
def test_a_large_buffer(size: int, wide: int) -> None:
    """Of small items, and of ones that fill a pipe; left, re-set and failing amid it all."""
    n, failing = 4 * size // wide + 3000, 2 * size // wide + 2000

    def make(x: int) -> Any:
        if x == failing:
            raise KeyError(x)
        return (x, "x" * wide)

    expected = [(x, "x" * wide) for x in range(n)]
    source = iterators.MapIterator(native(iterators, n), make)
    it = iterators.PrefetchIterator(source, size)
    assert some(it, failing // 2) == expected[: failing // 2]
    middle = it.getstate()
    it.setstate(None)
    assert some(it, 3) == expected[:3]
    it.setstate(middle)
    assert until_it_fails(it) == expected[failing // 2 : failing]
    with pytest.raises(KeyError):
        next(it)
    state = through_json(it.getstate())
    it.setstate(middle)
    assert some(it, 1) == expected[failing // 2 : failing // 2 + 1]
    it.close()
    failing = -1
    after = iterators.PrefetchIterator(iterators.MapIterator(native(iterators, n), make), size)
    after.setstate(state)
    assert some(after, n) == expected[2 * size // wide + 2000 :]
    after.setstate(None)
    next(after)
    after.close()


@pytest.mark.parametrize("size", [1, 3, 100])
def test_ib37_prefetch_resumes_anywhere(size: int) -> None:
    expected = some(stream(old))
    it = iterators.PrefetchIterator(stream(iterators), size)
    states = [it.getstate()]
    for item in expected:
        assert next(it) == item
        states.append(through_json(it.getstate()))
    assert some(it) == []
    for cut in (0, 1, 7, len(expected) - 1, len(expected)):
        it.setstate(states[cut])
        assert some(it) == expected[cut:]
    other = iterators.PrefetchIterator(stream(iterators), 2)
    other.setstate(states[9])
    assert some(other) == expected[9:]
    it.close(), other.close()


def test_ib39_prefetch_starts_with_the_first_item() -> None:
    before = {*worker_pids()}
    it = iterators.PrefetchIterator(native(iterators), 3)
    it.getstate()
    it.setstate(None)
    assert {*worker_pids()} <= before
    assert next(it) == 0
    it.close()


def test_ib40_prefetch_closes(caplog: pytest.LogCaptureFixture) -> None:
    for wrap in (lambda it: it, lambda it: iterators.MapIterator(it, str)):
        it = wrap(iterators.PrefetchIterator(native(iterators), 3))
        before = wrap(native(iterators))
        some(it, 4), some(before, 4)
        it.close()
        it.close()
        with pytest.raises(RuntimeError, match="closed"):
            next(it)
        with pytest.raises(RuntimeError, match="closed"):
            it.setstate(None)
        assert place(it.getstate()) == place(before.getstate())
    it = iterators.PrefetchIterator(native(iterators), 3)
    next(it)
    with pytest.warns(ResourceWarning, match="unclosed PrefetchIterator"):
        it = None
    with caplog.at_level(logging.WARNING):
        it = iterators.PrefetchIterator(native(iterators), 3, log_empty_buffer_warning=True)
        assert some(it) == list(range(30))
        it.close()
    assert "prefetch buffer is empty" in caplog.text


def failing_at_five(x: int) -> int:
    if x == 5:
        raise KeyError(x)
    return x


def test_d_prefetch_passes_errors_on() -> None:
    it = iterators.PrefetchIterator(iterators.MapIterator(native(iterators), failing_at_five), 2)
    given = until_it_fails(it)
    assert given == [0, 1, 2, 3, 4]
    state = it.getstate()
    with pytest.raises(KeyError):
        next(it)
    it.close()
    behind = iterators.MapIterator(
        iterators.PrefetchIterator(native(iterators), 2), failing_at_five
    )
    assert some(behind, 5) == given
    with pytest.raises(KeyError):
        next(behind)
    assert place(behind.getstate()) == place(state)
    with pytest.raises(KeyError):
        next(behind)
    behind.close()
