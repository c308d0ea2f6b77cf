"""States of the original, which resume here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from infinibatch import iterators as old

import lazyckpt as lz
from lazyckpt.compat.infinibatch import iterators
from tests.compat.infinibatch.cases import MAKES, Make, drawing, native, some


def bulk(item: Any) -> int:
    return len(str(item))


def copies(item: Any) -> list[Any]:
    return [(item, n) for n in range(bulk(item) % 4)]


def chained(state: list[Any], item: Any) -> tuple[list[Any], Any]:
    return [bulk(item), *state[:2]], list(state)


def behind(inner: st.SearchStrategy[Make]) -> st.SearchStrategy[Make]:
    """Each stage after those built before it."""
    stages: dict[str, Callable[[Any, Any, int], Any]] = {
        "select": lambda it, s, n: it.SelectManyIterator(it.MapIterator(s, copies)),
        "batch": lambda it, s, n: it.FixedBatchIterator(s, n),
        "windows": lambda it, s, n: it.WindowedIterator(s, n),
        "buffered": lambda it, s, n: it.BufferedShuffleIterator(s, n, n),
        "blockwise": lambda it, s, n: it.BlockwiseShuffleIterator(s, n, n),
        "recurrent": lambda it, s, n: it.RecurrentIterator(s, chained, [n]),
        "sampling": lambda it, s, n: it.SamplingRandomMapIterator(s, drawing, n),
        "buckets": lambda it, s, n: it.BucketedReadaheadBatchIterator(s, n, bulk, 2, seed=n),
    }

    def staged(name: str, make: Make, n: int) -> Make:
        return lambda it: stages[name](it, make(it), n)

    return st.one_of(
        st.builds(staged, st.sampled_from(sorted(stages)), inner, st.integers(1, 9)),
        st.builds(lambda a, b: lambda it: it.ZipIterator(a(it), b(it)), inner, inner),
    )


PIPELINES = st.recursive(
    st.sampled_from(["native", "native, of a dict", "chunked", "cycle", "permutation, few"]).map(
        MAKES.__getitem__
    ),
    behind,
    max_leaves=3,
)


@settings(max_examples=max(10, settings.default.max_examples // 2))
@given(PIPELINES)
def test_a_state_of_the_original_goes_on_here_in_any_pipeline(make: Make) -> None:
    expected = some(make(old), 43)
    theirs, ours = make(old), make(iterators)
    for cut in range(min(len(expected) + 2, 40)):
        ours.setstate(theirs.getstate())
        assert some(ours, 3) == expected[cut : cut + 3]
        some(theirs, 1)


@pytest.mark.parametrize("size", [3, 5, 8])
def test_a_state_with_a_buffer_of_another_size_is_refused(size: int) -> None:
    theirs = old.BufferedShuffleIterator(native(old), 4, 1)
    ours = iterators.BufferedShuffleIterator(native(iterators), size, 1)
    for cut in (1, 9, 10):
        some(theirs, cut)
        with pytest.raises(lz.InvalidState, match=f"buffer of 4, the iterator of {size}"):
            ours.setstate(theirs.getstate())
