"""Ranks of a job, as processes joined by gloo: `python ranks.py`, with a job as JSON per line.

It answers each job with a line of JSON: how many times the tokenizer was called, the CPU seconds
of all processes of all ranks, the seconds of wall time, and the bytes that went over the network.
The bytes are those of this process's network, which should not be shared.
"""

from __future__ import annotations

import ctypes
import json
import multiprocessing
import os
import socket
import sys
import tempfile
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from time import perf_counter
from typing import Any

import numpy as np
from contestants import of_ranks
from harness import spent

PR_SET_CHILD_SUBREAPER = 36
NETWORK = Path("/proc/net/dev")
TURNS = 28  # of a loop that take about a microsecond
PRELOADED = {  # once, before ranks are forked
    "shared": ["lazyckpt.integrations.torch", "lazyckpt.executors.sharing.node"],
    "shared_per_rank": ["lazyckpt.integrations.torch"],
    "datasets": ["datasets.distributed", "torch.utils.data"],
    "datasets_of_one_file": ["datasets.distributed", "torch.utils.data"],
    "accelerate": ["accelerate.data_loader"],
    "grain": ["grain.experimental"],
}


class Tokenizer:
    """Some 20 to 250 tokens for a number, in a number of microseconds of Python."""

    def __init__(self, calls: str, microseconds: int) -> None:
        self.calls, self.microseconds = calls, microseconds
        self._file: int | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return Tokenizer, (self.calls, self.microseconds)

    def __call__(self, n: int) -> np.ndarray[Any, Any]:
        if self._file is None:
            self._file = os.open(self.calls, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(self._file, b"\0")
        x = 0
        for y in range(TURNS * self.microseconds):
            x += y & 1
        return tokens(n)

    def note_unwaited(self, seconds: float) -> None:
        Path(f"{self.calls}.seconds").write_text(str(seconds))

    def unwaited(self) -> float:
        path = Path(f"{self.calls}.seconds")
        return float(path.read_text()) if path.exists() else 0.0


def tokens(n: int) -> np.ndarray[Any, Any]:
    return np.full(20 + n * 7919 % 230, n, np.int32)


def rank_of(contestant: str, rank: int, size: int, n: int, tokenize: Tokenizer) -> None:
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size)}
    dist: Any = import_module("torch.distributed")
    dist.init_process_group("gloo")
    spent(getattr(of_ranks, contestant)(rank, size, n, tokenize))
    dist.destroy_process_group()


def job(contestant: str, size: int, n: int, microseconds: int) -> dict[str, float]:
    """The figures of all ranks together for a number of documents."""
    for module in PRELOADED.get(contestant, []):
        import_module(module)
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        tokenize = Tokenizer(f"{folder}/calls", microseconds)
        ranks = [
            context.Process(target=rank_of, args=(contestant, rank, size, n, tokenize))
            for rank in range(size)
        ]
        begun = perf_counter(), processor_seconds(), network_bytes()
        for each in ranks:
            each.start()
        for each in ranks:
            each.join()
        reap_orphans()
        ended = perf_counter(), processor_seconds(), network_bytes()
        if lost := [number for number, each in enumerate(ranks) if each.exitcode]:
            raise RuntimeError(f"ranks {lost} of {size} failed")
        wall, cpu, received = (b - a for a, b in zip(begun, ended, strict=True))
        called = Path(tokenize.calls).stat().st_size
        cpu += tokenize.unwaited()
    return {"calls": called, "cpu": cpu, "wall": wall, "bytes": received / size}


def become_reaper() -> None:
    """Have processes whose parent has ended counted here, such as the workers of a reader."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def reap_orphans() -> None:
    with suppress(ChildProcessError):  # there are none
        while os.waitpid(-1, 0):
            pass


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def processor_seconds() -> float:
    """Of the processes that have ended, which ranks have waited for as well."""
    found = getrusage(RUSAGE_CHILDREN)
    return found.ru_utime + found.ru_stime


def network_bytes() -> int:
    """Bytes received, by any process of this network."""
    lines = NETWORK.read_text().splitlines()[2:] if NETWORK.exists() else []
    return sum(int(line.partition(":")[2].split()[0]) for line in lines)


def main() -> None:
    become_reaper()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        answer: dict[str, Any]
        try:
            answer = job(*json.loads(line))
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"[:200]}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
