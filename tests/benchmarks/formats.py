"""W11: the formats of `lazyckpt.io`, as `python -m tests.benchmarks.files` measures them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from harness import Row

ROOT = Path(__file__).parents[2]
MANY = 11  # rounds, for which files are large


def formats(rounds: int) -> Iterator[Row]:
    """A row for each line that it prints."""
    megabytes = 100 if rounds >= MANY else 20
    command = [sys.executable, "-m", "tests.benchmarks.files", f"{megabytes}"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        for line in process.stdout:
            if line.strip():
                yield Row("W11", "", [], remark=line.strip())
    if process.returncode:
        raise RuntimeError(f"{' '.join(command[1:])} ended with {process.returncode}")
