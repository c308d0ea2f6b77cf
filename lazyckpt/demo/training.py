"""The training run that is killed: a pipeline, a model, and one file with the state of both."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

import lazyckpt as lz
from lazyckpt.demo.data import Text, lines_of

Tokens = NDArray[np.uint8]
Say = Callable[..., None]

BATCH = 256
BUFFER = 8_192
SAVES = 100  # saves per run
_NEWLINE = np.frombuffer(b"\n", np.uint8)


@dataclass(frozen=True)
class Job:
    """The data to train on, and their order."""

    folder: str
    names: tuple[str, ...]
    lines: int
    epochs: int
    seed: int

    @staticmethod
    def of(text: Text, lines: int, seed: int) -> Job:
        """Return a job of about `lines` lines, in whole epochs."""
        epochs = max(1, round(lines / text.lines))
        return Job(str(text.folder), text.names, text.lines, epochs, seed)

    @property
    def batches(self) -> int:
        return -(-self.lines * self.epochs // BATCH)

    @property
    def stride(self) -> int:
        """The number of batches between saves."""
        return max(1, self.batches // SAVES)

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Job:
        found = json.loads(text)
        return Job(**{**found, "names": tuple(found["names"])})


def tokenise(line: bytes) -> Tokens:
    """Return a line's bytes, with one newline at the end."""
    return np.frombuffer(line.rstrip(b"\r\n") + b"\n", np.uint8)


def lines_pipeline(job: Job, tokenise: Callable[[bytes], Tokens] = tokenise) -> lz.Pipeline[Tokens]:
    """Return the lines of all chunks in random order, a new one in each epoch, as bytes."""
    folder, chunks = Path(job.folder), list(job.names)

    def read_lines(chunk: str) -> Iterator[bytes]:
        return lines_of(folder / chunk)

    return (
        lz.source(chunks)
        | lz.shuffle(seed=job.seed)
        | lz.repeat(job.epochs)
        | lz.flat_map(read_lines)
        | lz.shuffle(BUFFER, seed=job.seed + 1)
        | lz.map(tokenise)
    )


def pipeline_of(job: Job) -> lz.Pipeline[Tokens]:
    """Return the lines as batches of bytes."""
    return lines_pipeline(job) | lz.batch(BATCH, collate=join)


def join(lines: list[Tokens]) -> Tokens:
    """Concatenate lines to one text that begins after a newline."""
    return np.concatenate([_NEWLINE, *lines])


class Bigrams:
    """Prediction of the next byte from the last one: softmax regression, trained by Adagrad.

    It uses only counts and element-wise arithmetic, not BLAS, whose sums depend on threads.
    Adagrad: Duchi, Hazan, Singer, 2011.
    """

    RATE = 0.05

    def __init__(self, weights: NDArray[np.float32], squares: NDArray[np.float32]) -> None:
        self.weights = weights
        self.squares = squares

    @staticmethod
    def new() -> Bigrams:
        shape = 256, 256
        return Bigrams(np.zeros(shape, np.float32), np.zeros(shape, np.float32))

    def learn(self, text: Tokens) -> float:
        """Take one gradient step; return the loss before it, in bits per byte."""
        pairs = text[:-1].astype(np.intp) * 256 + text[1:]
        counts = np.bincount(pairs, minlength=65_536).reshape(256, 256)
        seen = np.flatnonzero(counts.any(axis=1))
        counts = counts[seen].astype(np.float32)
        logits = self.weights[seen]
        logits -= logits.max(axis=1, keepdims=True)
        odds = np.exp(logits)
        sums = odds.sum(axis=1, keepdims=True)
        bits = -(counts * (logits - np.log(sums))).sum() / (pairs.size * np.log(2))
        gradient = (odds / sums * counts.sum(axis=1, keepdims=True) - counts) / pairs.size
        self.squares[seen] += gradient**2
        self.weights[seen] -= self.RATE * gradient / np.sqrt(self.squares[seen] + 1e-10)
        return float(bits)

    def digest(self) -> str:
        return hashlib.sha256(self.weights.tobytes() + self.squares.tobytes()).hexdigest()


@dataclass(frozen=True)
class Checkpoint:
    """All that a training run needs to resume: the model, the pipeline's state, a running digest.

    `digest` is the SHA-256 of the previous digest and the batch, starting with the first batch.
    """

    model: Bigrams
    state: lz.State
    digest: bytes = bytes(32)

    def save(self, path: Path) -> None:
        """Write to a file next to it, then rename: a kill leaves either the old or the new file."""
        part = path.with_name(path.name + ".part")
        with part.open("wb") as file:
            np.savez(
                file,
                weights=self.model.weights,
                squares=self.model.squares,
                state=np.array(self.state.to_json()),
                digest=np.frombuffer(self.digest, np.uint8),
            )
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)

    @staticmethod
    def load(path: Path) -> Checkpoint:
        with np.load(path, allow_pickle=False) as file:
            return Checkpoint(
                Bigrams(file["weights"], file["squares"]),
                lz.State.from_json(str(file["state"])),
                file["digest"].tobytes(),
            )


def train(job: Job, path: Path, say: Say) -> None:
    """Train from the checkpoint at `path` to the end, with regular saves.

    Args:
        job: The data to train on.
        path: File of the checkpoint; if it doesn't exist, training begins.
        say: Function called with the events: `start BATCH`, `first SECONDS`, `batch BATCH LOSS`,
            `save BATCH`, `saved BATCH`.
    """
    pipeline = pipeline_of(job)
    if not path.exists():
        Checkpoint(Bigrams.new(), lz.init(pipeline)).save(path)
    at = Checkpoint.load(path)
    say("start", at.state.items)
    model, digest, first = at.model, at.digest, at.state.items + 1
    begun = perf_counter()
    with lz.run(pipeline, at.state) as run:
        for number, batch in enumerate(run, first):
            if number == first:
                say("first", perf_counter() - begun)
            loss = model.learn(batch)
            digest = hashlib.sha256(digest + batch.tobytes()).digest()
            say("batch", number, loss)
            if number % job.stride == 0:
                say("save", number)
                Checkpoint(model, run.state, digest).save(path)
                say("saved", number)
        Checkpoint(model, run.state, digest).save(path)


def main() -> int:
    """Train the job named on the command line, and report on stdout."""
    if len(sys.argv) != 3:
        sys.exit("python -m lazyckpt.demo is run by lazyckpt demo, with a JOB and a CHECKPOINT")
    job, path = Path(sys.argv[1]), Path(sys.argv[2])
    try:
        train(Job.from_json(job.read_text("utf-8")), path, lambda *words: print(*words, flush=True))
    except BrokenPipeError:  # the parent process is gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return 0
