"""Trainings that are killed, in processes of their own, and what came of them.

A test file trains where it is run as a script: `python test_x.py FOLDER`. It
tells `trained` of every batch, which notes it down, and kills it at the step
that the test wants.
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

LENGTH, BATCH = 40, 4  # ten batches an epoch
KILLED_AT = 18  # of 25, in the second epoch; saves are at 5, 10, 15
STEPS, SAVES = 25, 5

_WANTED = "LAZYCKPT_TEST_KILLED_AT"


def floats(numbers: list[int]) -> dict[str, Any]:
    """A batch for a linear model, which says what is in it."""
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
    """What an undisturbed training sees."""
    return [batch["number"].tolist() for batch in lz.run(pipeline).epoch(count)]


def trained(folder: Path, step: int, batch: Any, rank: int = 0) -> None:
    """Note down a batch that was trained on; `step` counts from 1."""
    line = json.dumps([step, np.asarray(batch["number"]).tolist()]) + "\n"
    with (folder / f"rank{rank}.jsonl").open("a") as file:
        file.write(line)
    if step == int(os.environ.get(_WANTED, "0")):
        os.kill(os.getpid(), signal.SIGKILL)


def starts(file: str, folder: Path, *words: str, killed_at: int = 0) -> subprocess.Popen[str]:
    """A training, in a process that is killed at a step, if at any."""
    root = str(Path(__file__).parents[1])
    env = dict(os.environ, PYTHONPATH=root, HF_HUB_OFFLINE="1", JAX_PLATFORMS="cpu")
    env |= {_WANTED: str(killed_at), "OMP_NUM_THREADS": "1", "WANDB_MODE": "disabled"}
    command = [sys.executable, file, str(folder), *words]
    return subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True)


def ends(*processes: subprocess.Popen[str], killed: bool = False) -> None:
    for process in processes:
        _, error = process.communicate(timeout=100)
        assert process.returncode == (-signal.SIGKILL if killed else 0), error


def noted(folder: Path, rank: int = 0) -> list[tuple[int, list[int]]]:
    """Steps and numbers, as they were noted down."""
    lines = (folder / f"rank{rank}.jsonl").read_text().splitlines()
    return [(step, numbers) for step, numbers in map(json.loads, lines)]


def killed_and_resumed(file: str, folder: Path, *words: str) -> list[list[int]]:
    """The batches of a training that was killed and went on, in its order.

    What came after the last save came twice, and has to be the same.
    """
    ends(starts(file, folder, *words, killed_at=KILLED_AT), killed=True)
    ends(starts(file, folder, *words))
    return once(noted(folder))


def once(notes: list[tuple[int, list[int]]]) -> list[list[int]]:
    """The notes of a killed training and of what went on, joined."""
    saved = KILLED_AT - KILLED_AT % SAVES
    steps = [step for step, _ in notes]
    assert steps == [*range(1, KILLED_AT + 1), *range(saved + 1, STEPS + 1)]
    again = dict(notes[KILLED_AT:])
    assert all(again.get(step, numbers) == numbers for step, numbers in notes)
    return list(dict(notes).values())
