"""What an interrupt leaves of workers that are ending."""

from __future__ import annotations

import os
import signal
from time import sleep

import pytest

import lazyckpt as lz

pytestmark = pytest.mark.usefixtures("nothing_left")


def asleep(x: int) -> int:
    if x:
        sleep(60)
    return x


@pytest.mark.parametrize("method", ["fork", "forkserver"])
def test_an_interrupted_close_leaves_no_file_open_for_good(method: str) -> None:
    """Its workers are closed with those of the next run."""

    def raising(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    executor = lz.processes(2, start_method=method)
    pipeline = lz.source(range(9)) | lz.map(asleep)
    with lz.run(lz.source(range(9)) | lz.map(abs), executor=executor) as run:
        list(run)
    before, handler = len(os.listdir("/dev/fd")), signal.signal(signal.SIGALRM, raising)
    try:
        for _ in range(5):
            run = lz.run(pipeline, executor=executor)
            assert next(run) == 0
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            with pytest.raises(KeyboardInterrupt):
                run.close()
    finally:
        signal.signal(signal.SIGALRM, handler)
    with lz.run(lz.source(range(9)) | lz.map(abs), executor=executor) as run:
        list(run)
    assert len(os.listdir("/dev/fd")) <= before + 2  # of a worker that is ending
