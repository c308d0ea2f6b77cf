"""Slots in shared memory, and processes that are forked while the consumer has some."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lazyckpt as lz
from tests.executors.faults import script
from tests.helpers import until

pytestmark = pytest.mark.usefixtures("nothing_left")

SIZE = 40_000


def make(item: int) -> Any:
    return np.full(SIZE, item)


@contextmanager
def forked(child: Callable[[], bool]) -> Iterator[int]:
    """Next to a forked process; assert that its result is right."""
    pid = os.fork()
    if not pid:
        try:
            os._exit(not child())
        finally:
            os._exit(2)
    yield pid
    assert os.waitpid(pid, 0)[1] == 0


@pytest.mark.parametrize(
    ("does", "workers"), [("drops", 1), ("iterates", 2), ("closes", 1), ("keeps", 2)]
)
def test_a_fork_with_items_in_hand(does: str, workers: int) -> None:
    """Whatever the child does with them, the parent's stay; and so do the child's."""
    pipeline = lz.source(range(400)) | lz.map(make)
    executor = lz.processes(workers, buffer_size=4)
    is_over, ends = os.pipe()
    with lz.run(pipeline, executor=executor) as run:
        given = list(islice(run, 20))
        held = given[-5:]
        del given
        until(lambda: run.stats.ready >= 2)  # not opened yet

        def child() -> bool:
            if does == "drops":
                held.clear()
            elif does == "iterates":
                held.clear()
                numbers = []
                for item in islice(run, 50):
                    numbers.append(item[0])
                    item[:] = -1  # which is none of the parent's
                return numbers == [*range(20, 70)]
            elif does == "closes":
                run.close()
                held.clear()
            else:
                os.read(is_over, 1)
                return all((item == n).all() for n, item in zip(range(15, 20), held, strict=True))
            return True

        with forked(child) as pid:
            if does != "keeps":
                os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
            mine = [item[0] for item in islice(run, 100)]
            assert all((item == n).all() for n, item in zip(range(15, 20), held, strict=True))
            held.clear()
            assert mine + [item[0] for item in run] == [*range(20, 400)]
            os.write(ends, b"1")
    os.close(ends)
    os.close(is_over)


CRAMPED = """
import resource
from pathlib import Path
import numpy as np
import lazyckpt as lz

def make(item):
    array = np.full(20 << 17, item)  # 20 MiB, in a slot of 32
    return array.tobytes() if PICKLED else array

if __name__ == "__main__":
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (700 << 20),) * 2)
    pipeline = lz.source(range(12)) | lz.map(make)
    with lz.run(pipeline, executor=lz.processes(3)) as run:
        for number, item in enumerate(run):
            assert (np.frombuffer(item, int) == number).all()
    print(number)
"""


@pytest.mark.parametrize("pickled", [False, True])
def test_slots_that_do_not_fit_in_the_address_space(pickled: bool, tmp_path: Path) -> None:
    """The slots of one worker fit, the slots of all workers don't."""
    assert script(tmp_path, f"PICKLED = {pickled}{CRAMPED}") == "11\n"
