"""Forks in a process with threads: one at a time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

from lazyckpt.executors.pools import forking
from tests.executors.faults import script

SCRIPT = """
import os, threading, time
import lazyckpt as lz

forking, overlaps = set(), []

def before():
    forking.add(threading.get_ident())
    overlaps.extend([len(forking)] * (len(forking) > 1))
    time.sleep(0.02)  # as if it waited for a lock

def after():
    forking.discard(threading.get_ident())

os.register_at_fork(before=before, after_in_parent=after)

def runs():
    for _ in range(5):
        with lz.run(lz.source(range(4)) | lz.map(abs), executor=lz.processes(1)) as run:
            assert list(run) == [0, 1, 2, 3]

if __name__ == "__main__":
    threads = [threading.Thread(target=runs) for _ in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    print(overlaps)
"""


def test_one_thread_forks_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    command = [sys.executable, "-W", "ignore", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"
    assert not done.stderr


DROPPED = """
import gc
from concurrent.futures import ThreadPoolExecutor
import lazyckpt as lz

class Stream:
    def __iter__(self):
        return iter(range(9))

if __name__ == "__main__":
    with ThreadPoolExecutor(1) as pool:
        run = lz.run(lz.source(Stream()) | lz.map(abs), executor=lz.futures(pool, buffer_size=1))
        print(next(run))
        del run
        gc.collect()
    with lz.run(lz.source([7]) | lz.map(abs), executor=lz.processes()) as run:
        print(*run)
"""


def test_a_run_that_was_dropped_leaves_no_thread_to_tell_of(tmp_path: Path) -> None:
    """Though Python up to 3.12 lists the thread in which it was stopped as long as it lives."""
    before = "import multiprocessing\nmultiprocessing.set_start_method('fork')\n"
    assert script(tmp_path, before + DROPPED) == "0\n7\n"


class Interrupt(BaseException):
    pass


@pytest.mark.skipif(sys.version_info < (3, 12), reason="nothing tells of jumps")
def test_an_interrupt_while_a_fork_waits_lets_others_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also at the jump back of a loop, at which a signal handler may run."""
    monkeypatch.setattr(forking, "_working", {0})
    monitoring: Any = sys.monitoring
    tool, jump = monitoring.DEBUGGER_ID, monitoring.events.JUMP

    def interrupt(code: CodeType, *_: int) -> None:
        if code.co_filename == forking.__file__:
            raise Interrupt

    monitoring.use_tool_id(tool, "interrupts")
    try:
        monitoring.register_callback(tool, jump, interrupt)
        monitoring.set_events(tool, jump)
        with pytest.raises(Interrupt), forking.forking(tell=False):
            pass
    finally:
        monitoring.set_events(tool, 0)
        monitoring.free_tool_id(tool)
    assert not forking._forking
