"""Limits of processes, threads and open files, met by workers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.executors.faults import SOON, script

pytestmark = pytest.mark.usefixtures("nothing_left")


FORKS_NOT = """
import errno, os

def fork():
    raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

if os.environ["HERE"] != str(os.getppid()):
    os.fork = fork

def use(x):
    return x
"""
USES_NO_FORK = """
import os
import lazyckpt as lz

os.environ["HERE"] = str(os.getppid())
import forks_not

def run(function):
    return lz.run(lz.source(range(3)) | lz.map(function), executor=lz.processes())

with run(abs) as begun:
    print(next(begun))
    with run(forks_not.use) as refused:
        try:
            next(refused)
        except lz.errors.WorkerDied as error:
            print(error)
        print(*refused)
    print(*begun)
"""


def test_a_process_that_cannot_be_started_ends_no_other_run(tmp_path: Path) -> None:
    (tmp_path / "forks_not.py").write_text(FORKS_NOT)
    first, error, *others = script(tmp_path, USES_NO_FORK).splitlines()
    assert [first, *others] == ["0", "0 1 2", "1 2"]
    assert "couldn't start (Resource temporarily unavailable) before its first item" in error
    assert "limits of memory, processes and open files (ulimit -a)" in error


FEW_FILES = """
import resource
import lazyckpt as lz

resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
many = lz.processes(64, start_method={method!r})
with lz.run(lz.source(range(9)) | lz.map(abs), executor=many) as run:
    try:
        next(run)
    except OSError as error:
        print(error)
"""


@pytest.mark.parametrize("method", ["forkserver", "fork"])
def test_too_few_files_for_so_many_workers_are_an_error_that_says_so(method: str) -> None:
    code = FEW_FILES.format(method=method)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=SOON, check=True
    )
    assert "Too many open files: each worker needs a few; raise the limit" in done.stdout


ANY_LIMIT = """
import os
import resource
import numpy as np
import lazyckpt as lz

pipeline = lz.source(range(9)) | lz.map(lambda x: np.full(9_000, x))
for limit in range(16, 28):
    if child := os.fork():
        os.waitpid(child, 0)
        continue
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    try:
        with lz.run(pipeline, executor=lz.processes(4)) as run:
            print(len([*run]), flush=True)
    except (OSError, lz.errors.WorkerDied) as error:
        print(error, flush=True)
    break
"""


def test_too_few_files_at_any_moment_are_an_error_that_says_so(tmp_path: Path) -> None:
    told = script(tmp_path, ANY_LIMIT).splitlines()
    assert told[-1] == "9"
    assert [each for each in told if each != "9" and "(ulimit -" not in each] == []
