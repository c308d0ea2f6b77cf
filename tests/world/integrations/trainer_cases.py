"""Training runs that are killed, in processes of their own, and their results.

A test file trains if it is run as a script: `python test_x.py FOLDER`. It passes every batch to
`trained`, which notes it down, and kills the process at the step that the test wants.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

import lazyckpt as lz

LENGTH, BATCH, EPOCH = 40, 4, 10
STEPS, SAVES, KILLED_AT = 25, 5, 18  # steps in all, from one save to the next, before the kill

_WANTED = "LAZYCKPT_TEST_KILLED_AT"


def floats(numbers: list[int]) -> dict[str, Any]:
    """A batch for a linear model, which lists its items."""
    x = np.array(numbers, np.float32)[:, None] / LENGTH
    return {"x": x, "y": 2 * x, "number": np.array(numbers)}


def pipeline_of(num_shards: int = 1, index: int = 0) -> lz.Pipeline[dict[str, Any]]:
    """Endless, of one rank; only its own batches are made."""
    ranks = lz.shard(num_shards=num_shards, index=index)
    numbers = lz.source(range(LENGTH)) | lz.shuffle(seed=0) | lz.repeat() | ranks
    return numbers | lz.batch(BATCH, collate=floats)


def epoch_of() -> lz.Pipeline[dict[str, Any]]:
    """The same, for loops over epochs."""
    return lz.source(range(LENGTH)) | lz.shuffle(seed=0) | lz.batch(BATCH, collate=floats)


def numbers_of(pipeline: lz.Pipeline[dict[str, Any]], count: int = STEPS) -> list[list[int]]:
    """The batches of an undisturbed training run."""
    return [batch["number"].tolist() for batch in lz.run(pipeline).epoch(count)]


def trained(folder: Path, step: int, batch: Any, rank: int | None = None) -> None:
    """Note down a batch that was trained on; `step` counts from 1. Ranks die together."""
    line = json.dumps([step, np.asarray(batch["number"]).tolist()]) + "\n"
    with (folder / f"rank{rank or 0}.jsonl").open("a") as file:
        file.write(line)
    if step == int(os.environ.get(_WANTED, "0")):
        if rank is not None:
            print(step, flush=True)
            signal.pause()
        os.kill(os.getpid(), signal.SIGKILL)


def starts(file: str, folder: Path, *words: str, killed_at: int = 0) -> subprocess.Popen[str]:
    """A training, in a process that is killed at a step, if at any."""
    root = str(Path(__file__).parents[3])
    env = dict(os.environ, PYTHONPATH=root, HF_HUB_OFFLINE="1", JAX_PLATFORMS="cpu")
    env |= {_WANTED: str(killed_at), "OMP_NUM_THREADS": "1", "TQDM_DISABLE": "1"}
    command = [sys.executable, file, str(folder), *words]
    return subprocess.Popen(
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def ends(process: subprocess.Popen[str], killed: bool = False) -> None:
    with process:
        _, error = process.communicate(timeout=280)
    assert process.returncode == (-signal.SIGKILL if killed else 0), error


def noted(folder: Path, rank: int = 0) -> list[tuple[int, list[int]]]:
    """Steps and numbers, as they were noted down."""
    lines = (folder / f"rank{rank or 0}.jsonl").read_text().splitlines()
    return [(step, numbers) for step, numbers in map(json.loads, lines)]


def killed_and_resumed(
    file: str, folder: Path, *words: str, killed_at: int = KILLED_AT
) -> list[list[int]]:
    """The batches of a training run that was killed and resumed, in its order.

    The batches after the last save come twice, and have to be the same.
    """
    ends(starts(file, folder, *words, killed_at=killed_at), killed=True)
    ends(starts(file, folder, *words))
    return once(noted(folder), killed_at)


def once(notes: list[tuple[int, list[int]]], killed_at: int = KILLED_AT) -> list[list[int]]:
    """The notes of a killed training run and of its resumption, joined."""
    saved = killed_at - killed_at % SAVES
    steps = [step for step, _ in notes]
    assert steps == [*range(1, killed_at + 1), *range(saved + 1, STEPS + 1)]
    again = dict(notes[killed_at:])
    assert all(again.get(step, numbers) == numbers for step, numbers in notes)
    return list(dict(notes).values())
