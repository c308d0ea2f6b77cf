"""Properties that are computed once; until Python 3.12, functools' had a lock for all objects."""

from __future__ import annotations

import os
import signal
from threading import Event, Thread
from typing import Any

import lazyckpt as lz


def built(pipeline: lz.Pipeline[int]) -> list[int]:
    """The items of an equal pipeline, whose machine is built when they are asked for."""
    return [*lz.Pipeline[int](pipeline.calls)]


def test_a_process_that_is_forked_while_a_thread_builds_a_pipeline() -> None:
    begun, may_end = Event(), Event()

    @lz.combinator(registered=False)
    def slowly(upstream: Any) -> Any:
        if thread.is_alive():
            begun.set()
            may_end.wait()
        return lz.registry["take"].build(upstream, 5)

    thread = Thread(target=lambda: built(slow))
    slow, quick = (lz.source([1, 2]) | stage for stage in (slowly(), lz.take(5)))
    thread.start()
    begun.wait()
    pid = os.fork()
    if not pid:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(20)  # if it hangs
        try:
            os._exit(built(quick) != [1, 2])
        finally:
            os._exit(2)
    may_end.set()
    thread.join()
    assert os.waitpid(pid, 0)[1] == 0
