"""Forks beside threads: one at a time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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
