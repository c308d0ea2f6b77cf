"""Leftovers of workers whose end an interrupt disturbs."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from time import sleep

import pytest

import lazyckpt as lz
from tests.executors.faults import LONG, script
from tests.helpers import until

pytestmark = pytest.mark.usefixtures("nothing_left")


class Asleep:
    """Sleeps from the second item on; each worker that does so leaves a file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()

    def __call__(self, x: int) -> int:
        if x:
            (self.folder / str(os.getpid())).touch()
            sleep(LONG)
        return x


def end_all(executor: lz.Executor) -> None:
    """Have a run of which no worker has more to do."""
    with lz.run(lz.source(range(9)) | lz.map(abs), executor=executor) as run:
        list(run)


def interrupted(close: Callable[[], None]) -> None:
    signal.setitimer(signal.ITIMER_REAL, 0.05)  # workers that sleep have longer to end
    close()


@pytest.mark.parametrize("method", ["fork", "forkserver"])
def test_an_interrupted_close_leaves_no_file_open_for_good(method: str, tmp_path: Path) -> None:
    """Its workers are closed together with the workers of the next run."""

    def raising(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    executor = lz.processes(2, start_method=method)
    end_all(executor)
    before, handler = len(os.listdir("/dev/fd")), signal.signal(signal.SIGALRM, raising)
    try:
        for number in range(5):
            asleep = Asleep(tmp_path / str(number))
            run = lz.run(lz.source(range(9)) | lz.map(asleep), executor=executor)
            assert next(run) == 0
            until(lambda folder=asleep.folder: len(os.listdir(folder)) == 2)
            with pytest.raises(KeyboardInterrupt):
                interrupted(run.close)
    finally:
        signal.signal(signal.SIGALRM, handler)
    until(lambda: end_all(executor) or len(os.listdir("/dev/fd")) <= before + 2)


SLOW_TO_IMPORT = """
import os
from pathlib import Path
from time import sleep

if "SLOW" in os.environ:
    sleep(1.5)
    Path("imported").touch()

def noted(item):
    Path("called").touch()
    return item
"""

CLOSED_SOON = """
import os
import signal
from pathlib import Path
from time import sleep

import lazyckpt as lz
import slow_to_import

class Interrupted(Exception):
    pass

def interrupt(number, frame):
    raise Interrupted

os.environ["SLOW"] = "in workers"
signal.signal(signal.SIGALRM, interrupt)
run = lz.run(lz.source(range(9)) | lz.map(slow_to_import.noted), executor=lz.processes(1))
signal.setitimer(signal.ITIMER_REAL, 0.3)
try:
    next(run)
except Interrupted:
    run.close()
while not Path("imported").exists():
    sleep(0.1)
sleep(1)  # a worker that starts now has time to call the function
print(Path("called").exists())
"""


def test_a_worker_that_starts_after_the_run_was_closed_calls_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "slow_to_import.py").write_text(SLOW_TO_IMPORT)
    assert script(tmp_path, CLOSED_SOON) == "False\n"
