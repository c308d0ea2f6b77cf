"""The call of a task that is in progress, and errors in place of some calls."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lazyckpt as lz
from lazyckpt.failures.skip_log import SkipLog
from lazyckpt.failures.skipping import skipping
from lazyckpt.failures.watching import Watch, guarded_in, leave_out, name_of, watched

ERROR = lz.WorkerDied("worker killed by SIGKILL")


def cell() -> memoryview:
    return memoryview(bytearray(8)).cast("q")


def made(chain: Any) -> list[Any]:
    return [*chain.machine.flow(chain.machine.init(0))]


def expand(item: int) -> Iterator[int]:
    yield from range(item)


def small(item: int) -> bool:
    return item < 9


PIPELINE = lz.concat(
    lz.source(range(6)) | lz.map(abs) | lz.filter(small),
    lz.source(range(4)) | lz.flat_map(expand),
)


def test_calls_are_numbered_while_they_are_under_way() -> None:
    place, seen = cell(), []
    watch = Watch(place, {2: ERROR})

    def outer(x: int) -> int:
        seen.append(place[0])
        found: int = watch.call((), abs, x)
        seen.append(place[0])
        return found

    with pytest.raises(lz.WorkerDied):
        watch.call((), outer, -1)
    assert (seen, place[0]) == ([1], 0)
    assert watch.call((), outer, -1) == 1
    assert (seen, place[0]) == ([1, 3, 3], 0)
    watch.is_over = True
    watch.call((), outer, -1)
    assert seen[3:] == [0, 0]


def test_a_process_that_is_forked_meanwhile_counts_nothing() -> None:
    place = cell()
    watch = Watch(place, {1: ERROR})
    child = os.fork()
    if not child:
        os._exit(watch.call((), abs, -7))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_what_is_watched_pickles_as_what_it_is() -> None:
    chain = skipping(lz.source(range(4)) | lz.map(abs), SkipLog())
    with watched(chain.calls, Watch(cell(), {1: ERROR})):
        copy = pickle.loads(pickle.dumps(chain))
    assert made(copy) == [0, 1, 2, 3]


def test_a_record_has_the_same_name_wherever_it_is_made() -> None:
    word = "".join("ab")
    twice, equal = {"x": word, "y": word}, {"x": word, "y": "".join("ab")}
    assert name_of((0, twice)) == name_of((0, equal)) == 298_168_407_307
    assert len({name_of((n, item)) for n in range(3) for item in (1, "1", b"1", 1.0)}) == 12


def test_what_cannot_be_pickled_has_no_name() -> None:
    cyclic: list[Any] = []
    cyclic.append(cyclic)
    assert name_of((0, cyclic)) is name_of((0, lambda: 0)) is None


@given(st.sets(st.integers(1, 40), max_size=4))
def test_what_was_left_out_once_is_left_out_without_a_call(numbers: set[int]) -> None:
    chain = skipping(PIPELINE, SkipLog())
    watch = Watch(cell(), dict.fromkeys(numbers, ERROR))
    with watched(chain.calls, watch):
        found = made(chain)
    leave_out(guarded_in(chain.calls), watch.lost)
    assert made(chain) == found
    leave_out(guarded_in(chain.calls), {})
    assert made(chain) == made(skipping(PIPELINE, SkipLog()))
