"""Training runs that are killed, in processes of their own, and their results.

A test file trains if it is run as a script: `python test_x.py FOLDER`. It imports its framework
once, and forks each training, which passes every batch to `trained`. That notes it down, and waits
to be killed at a step.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import lazyckpt as lz
from tests.world.integrations.forks import codes, end_all, forked, is_where_it_is_killed, killed

LENGTH, BATCH = 40, 4
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


def trained(folder: Path, step: int, batch: Any, rank: int = 0) -> None:
    """Note down a batch that was trained on; `step` counts from 1."""
    line = json.dumps([step, np.asarray(batch["number"]).tolist()]) + "\n"
    with (folder / f"rank{rank}.jsonl").open("a") as file:
        file.write(line)
    if step == int(os.environ.get(_WANTED, "0")):
        is_where_it_is_killed()


def runs(file: str, folder: Path, *words: str) -> None:
    """Run a test file as a script."""
    root = str(Path(__file__).parents[3])
    env = dict(os.environ, PYTHONPATH=root, HF_HUB_OFFLINE="1", JAX_PLATFORMS="cpu")
    env |= {"OMP_NUM_THREADS": "1", "TQDM_DISABLE": "1"}
    command = [sys.executable, file, str(folder), *words]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr


def kill_and_resume(
    train: Callable[[Path, str, int], object], folder: Path, kinds: Iterable[str], ranks: int = 1
) -> None:
    """Begin trainings, kill them, and begin them again: a folder, a kind, and a rank are given."""
    try:
        for kind in kinds:
            (folder / kind).mkdir()
            for killed_at in (KILLED_AT, 0):
                os.environ[_WANTED] = str(killed_at)
                pids = [forked(partial(train, folder / kind, kind, rank)) for rank in range(ranks)]
                if killed_at:
                    killed(pids)
                else:
                    assert codes(pids) == [0] * ranks
    finally:
        end_all()


def noted(folder: Path, rank: int = 0) -> list[list[int]]:
    """The batches of a training run that was killed and resumed, in its order.

    The batches after the last save come twice, and have to be the same.
    """
    lines = (folder / f"rank{rank}.jsonl").read_text().splitlines()
    notes = [(step, numbers) for step, numbers in map(json.loads, lines)]
    saved = KILLED_AT - KILLED_AT % SAVES
    steps = [step for step, _ in notes]
    assert steps == [*range(1, KILLED_AT + 1), *range(saved + 1, STEPS + 1)]
    again = dict(notes[KILLED_AT:])
    assert all(again.get(step, numbers) == numbers for step, numbers in notes)
    return list(dict(notes).values())
