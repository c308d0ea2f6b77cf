"""Texts and jobs for the tests of the demo."""

from __future__ import annotations

import sysconfig
from pathlib import Path
from typing import Any

from lazyckpt.demo import data
from lazyckpt.demo.training import Job

STDLIB = Path(sysconfig.get_path("stdlib"))
MODULES = ["bisect.py", "heapq.py", "queue.py", "textwrap.py"]
TIMEOUT = 240  # seconds until a demo hangs, on however busy a machine


def small_job(folder: Path, lines: int = 5_000, seed: int = 0) -> Job:
    return Job.of(data.users([str(folder)]), lines, seed)


def ignore(*_: Any) -> None:
    pass
