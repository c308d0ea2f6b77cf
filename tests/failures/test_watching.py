"""The call of a task that is in progress, and errors in place of some calls."""

from __future__ import annotations

import os
import pickle
from typing import Any

import lazyckpt as lz
from lazyckpt.failures.skip_log import SkipLog
from lazyckpt.failures.skipping import skipping
from lazyckpt.failures.watching import Watch, name_of, watched

ERROR = lz.WorkerDied("worker killed by SIGKILL")


def cell() -> memoryview:
    return memoryview(bytearray(8)).cast("q")


def made(chain: Any) -> list[Any]:
    return [*chain.machine.flow(chain.machine.init(0))]


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
