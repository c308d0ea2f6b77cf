"""Processes of the demo, and their output."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from time import monotonic

_SILENCE = 300.0  # seconds without output after which a process counts as stuck


class ChildFailed(Exception):
    """The training run ended, but neither by itself nor by a kill."""


class Child:
    """A Python process and its output; it ends when the block is left.

    Args:
        arguments: Command-line arguments of Python.
        errors: The file for its error output.
    """

    def __init__(self, arguments: Sequence[str], errors: Path) -> None:
        self._errors = errors.open("w+b")
        self.process = subprocess.Popen(
            [sys.executable, "-P", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,  # Ctrl-C reaches only this process
            env=os.environ | {"PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))},
        )
        self._words: SimpleQueue[list[str]] = SimpleQueue()
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()
        self.moment: float | None = None  # the time at which to kill it
        self.killed = False

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.endswith(b"\n"):
                self._words.put(line.decode().split())
        self._words.put([])

    def words(self) -> Iterator[list[str]]:
        """Yield the child's output, line by line, to its end; kill the child at `moment`."""
        while True:
            left = _SILENCE if self.moment is None else self.moment - monotonic()
            try:
                words = self._words.get(timeout=max(0.0, left))
            except Empty:
                if self.moment is None:
                    raise ChildFailed(f"the training was silent for {_SILENCE:.0f} s") from None
                self._kill()
                continue
            if not words:
                return
            yield words
            if self.moment is not None and monotonic() >= self.moment:
                self._kill()

    def _kill(self) -> None:
        self.process.kill()
        self.moment, self.killed = None, True

    def ended(self) -> bool:
        """Return True if it ended by itself, False if it was killed."""
        status = self.process.wait(timeout=_SILENCE)
        if status == 0:
            return True
        if self.killed and (status < 0 or os.name == "nt"):
            return False
        self._errors.seek(0)
        text = self._errors.read().decode(errors="replace").strip()
        raise ChildFailed(f"the training failed with exit status {status}\n{text}".strip())

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        self.process.wait(timeout=_SILENCE)
        self._reader.join(timeout=_SILENCE)
        if self.process.stdout is not None:
            self.process.stdout.close()
        self._errors.close()
