"""`change`: from the next item on another pipeline, as `rebase` carries the state over."""

from __future__ import annotations

from functools import partial
from itertools import islice
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import lazyckpt as lz

EXECUTORS = [None, lz.threads(2), lz.processes(2)]
SIZE = 60


def tokens(item: Any) -> list[int]:
    """A sequence whose length depends on the mark."""
    return [item[0] + 1] * (1 + (item[0] + item[1]) % 3)


def packed(row: Any) -> list[Any]:
    return [(x - 1, -1) for x in dict.fromkeys(row["tokens"].tolist()) if x]


# Stages that pass each item on exactly once, some of which hold many.
KEEPING: dict[str, Any] = {
    "shuffle": lz.shuffle(5, seed=1),
    "block_shuffle": lz.block_shuffle(4, seed=2),
    "batch": lz.batch(3) | lz.unbatch(),
    "batch, shuffle": lz.batch(3) | lz.shuffle(4, seed=3) | lz.unbatch(),
    "pack": lz.map(tokens) | lz.pack_first_fit(9, num_bins=2) | lz.flat_map(packed),
    "bucket": lz.bucket_batch(2, key=lambda x: x[0], window_size=6, seed=4) | lz.unbatch(),
    "groups": lz.group_by(lambda x: x[0] // 7) | lz.flat_map(lambda pair: pair[1]),
    "enumerate": lz.enumerate() | lz.map(lambda pair: pair[1]),
    "take": lz.take(1000),
    "windows": lz.sliding_window(1) | lz.flat_map(list),
    "filter": lz.filter(bool),
    "flat_map": lz.flat_map(lambda x: [x]),
    "scan": lz.scan(lambda n, x: (n + 1, x), 0),
    "tap": lz.tap(len),
    "rows": lz.token_batch(7, key=len) | lz.unbatch(),
}


def marked(mark: int, item: Any) -> Any:
    return (item[0], mark)


def differs(least: int, item: Any) -> bool:
    return bool((item[0] * 7919) % 10 >= least)


CHANGING: dict[str, Any] = {
    "filter": partial(lz.filter, differs),
    "map": partial(lz.map, marked),
    "batch": lambda n: lz.batch(n + 1) | lz.unbatch(),
    "token_batch": lambda n: lz.token_batch(4 + n, key=len) | lz.unbatch(),
}


@st.composite
def changes(draw: st.DrawFn) -> tuple[lz.Pipeline[Any], lz.Pipeline[Any], int, int, int, bool]:
    """A pipeline before and after a change, its two values, when, and whether items go missing."""
    name = draw(st.sampled_from(sorted(CHANGING)))
    one, other = draw(st.integers(0, 6)), draw(st.integers(0, 6))
    stages = st.lists(st.sampled_from(sorted(KEEPING)), max_size=2)
    before, behind = draw(stages), draw(stages)
    old, new = (lz.source([(x, -1) for x in range(SIZE)]) for _ in range(2))
    for each in before:
        old, new = old | KEEPING[each], new | KEEPING[each]
    old, new = old | CHANGING[name](one), new | CHANGING[name](other)
    for each in behind:
        old, new = old | KEEPING[each], new | KEEPING[each]
    return old, new, one, other, draw(st.integers(0, SIZE)), name == "filter"


@given(changes())
def test_nothing_is_lost_and_nothing_comes_twice(case: Any) -> None:
    old, new, one, other, cut, chooses = case
    run = lz.run(old)
    first = [item[0] for item in islice(run, cut)]
    state = run.state
    try:
        run.change(new)
    except lz.StateMismatch:
        assert (run.state, run.pipeline) == (state, old)
        assert [item[0] for item in run] == [item[0] for item in lz.run(old, state)]
        return
    rest = [item[0] for item in run]
    kept = [(x * 7919) % 10 if chooses else 10 for x in range(SIZE)]
    for x in range(SIZE):
        if kept[x] >= max(one, other):
            assert (first + rest).count(x) == 1, (x, first, rest)
        assert (first + rest).count(x) <= 1, (x, first, rest)
    assert all(kept[x] >= other for x in rest)
