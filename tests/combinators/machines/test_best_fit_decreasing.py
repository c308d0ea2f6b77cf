"""Best-fit decreasing by groups: the result is the same as one by one."""

from __future__ import annotations

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from lazyckpt.combinators.machines.best_fit_decreasing import best_fit_decreasing


def one_by_one(sizes: list[int], length: int) -> list[int]:
    """The space left in each row."""
    rooms: list[int] = []
    for size in sorted(sizes, reverse=True):
        fits = [room for room in rooms if room >= size]
        room = min(fits, default=length)
        if fits:
            rooms.remove(room)
        rooms.append(room - size)
    return sorted(rooms)


@given(
    length=st.integers(1, 40),
    sizes=st.lists(st.integers(1, 40), max_size=200) | st.lists(st.integers(1, 4), max_size=200),
)
@example(length=10, sizes=[])
@example(length=10, sizes=[3] * 7 + [2] * 3)
def test_rows_have_as_much_room_as_one_by_one(length: int, sizes: list[int]) -> None:
    fitting = sorted((size for size in sizes if size <= length), reverse=True)
    rows, count = best_fit_decreasing(np.array(fitting, np.int64), length)
    filled = np.bincount(rows, fitting, minlength=count).astype(int)
    assert len(rows) == len(fitting)
    assert len(filled) == count
    assert sorted(length - filled) == one_by_one(fitting, length)
