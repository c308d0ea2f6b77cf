"""Ctrl-C: the run continues."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.executors.faults import LONG, SOON
from tests.helpers import until

pytestmark = pytest.mark.usefixtures("nothing_left")


INTERRUPTED = """
import os, sys, time
import lazyckpt as lz

folder = sys.argv[1]

def ready(index):
    open(folder + f"/ready{{index}}", "w").close()

def slowly(x):
    if x == 3:
        open(folder + "/begun", "w").close()
        while not os.path.exists(folder + "/go"):
            time.sleep(0.005)
    return x

if __name__ == "__main__":
    pipeline = lz.source(range(6)) | lz.map(slowly) | lz.{stage}
    with lz.run(pipeline, executor={executor}) as run:
        found = []
        try:
            for item in run:
                found.append(item)
        except KeyboardInterrupt:
            assert run.state == lz.state_at(pipeline, len(found))
            open(folder + "/go", "w").close()
            found.extend(run)
        else:
            found = "not interrupted"
    print(found)
"""


@pytest.mark.parametrize(
    ("executor", "stage"),
    [
        ("threads()", "filter(lambda x: True)"),
        ("threads(2)", "filter(lambda x: True)"),
        ("processes(1)", "map(int)"),
        ("processes(2)", "filter(lambda x: True)"),
        ("processes(2, worker_init=ready)", "map(int)"),
        ("processes(2, start_method='spawn')", "filter(lambda x: True)"),
    ],
)
def test_a_ctrl_c_in_the_consumer(executor: str, stage: str, tmp_path: Path) -> None:
    text = INTERRUPTED.format(executor="lz." + executor, stage=stage)
    (tmp_path / "script.py").write_text(text)
    with subprocess.Popen(
        [sys.executable, tmp_path / "script.py", tmp_path],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        until((tmp_path / "begun").exists)
        if "ready" in executor:  # a server's child can be hit before it is a worker
            until((tmp_path / "ready0").exists)
            until((tmp_path / "ready1").exists)
        os.killpg(process.pid, signal.SIGINT)
        try:
            out, error = process.communicate(timeout=SOON)
        finally:
            process.kill()  # if it continues, which nothing waits for
    assert (out.decode().strip(), error.decode()) == ("[0, 1, 2, 3, 4, 5]", "")


AT_ANY_MOMENT = """
import random, signal, sys
from contextlib import suppress
from time import monotonic
import lazyckpt as lz

def yes(x):
    return True

def ctrl_c(*_):
    signal.raise_signal(signal.SIGINT)

sys.unraisablehook = lambda _: None  # an interrupt within a callback
signal.signal(signal.SIGALRM, ctrl_c)
moments, last = random.Random(0), -1

def loop():  # no `try` is around it here: a loop's jump back may be outside of that, from 3.13 on
    global last
    begun = monotonic()
    signal.setitimer(signal.ITIMER_REAL, moments.uniform(1e-5, 4e-3))
    for item in run:
        assert item == last + 1, (item, last)
        last = item
        if monotonic() > begun + 0.05:
            break
    signal.setitimer(signal.ITIMER_REAL, 0)

with lz.run(lz.count() | {stage}, executor={executor}) as run:
    for _ in range(60):
        with suppress(KeyboardInterrupt):
            loop()
        assert run.state.items == run.state.position[1] == last + 1, (run.state, last)
    assert next(run) == last + 1
"""


STAGES = ["lz.map(abs)", "lz.map(lambda x: x)", "lz.filter(yes)"]


@pytest.mark.parametrize(
    ("executor", "stage"),
    [
        ("None", STAGES[1]),
        ("None", STAGES[2]),
        ("lz.threads()", STAGES[0]),
        ("lz.threads(2, buffer_size=5)", STAGES[2]),
        ("lz.threads(gated=True)", STAGES[1]),
        ("lz.processes()", STAGES[2]),
    ],
)
def test_interrupts_at_any_moment(executor: str, stage: str, tmp_path: Path) -> None:
    goes_on_after_interrupts(executor, stage, tmp_path)


def goes_on_after_interrupts(executor: str, stage: str, tmp_path: Path) -> None:
    """After each Ctrl-C the state is after the loop's last item, and the run continues there.

    In a process of its own, whose other software has no locks that an interrupt may leave taken.
    """
    path = tmp_path / "script.py"
    path.write_text(AT_ANY_MOMENT.format(executor=executor, stage=stage))
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=LONG)
    assert done.returncode == 0, done.stderr
