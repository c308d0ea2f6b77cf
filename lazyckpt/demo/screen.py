"""The terminal of the demo."""

from __future__ import annotations

import sys
from time import monotonic


class Screen:
    """Lines that stay, and on a terminal one more line that is overwritten."""

    def __init__(self) -> None:
        self._is_tty = sys.stdout.isatty()
        self._shown = 0
        self._next = 0.0

    def line(self, text: str = "") -> None:
        print(f"{self._blank()}{text}", flush=True)

    def status(self, text: str) -> None:
        if self._is_tty and monotonic() >= self._next:
            print(f"{self._blank()}{text}", end="", flush=True)
            self._shown, self._next = len(text), monotonic() + 0.1

    def clear(self) -> None:
        print(self._blank(), end="", flush=True)

    def _blank(self) -> str:
        width, self._shown, self._next = self._shown, 0, 0.0
        return f"\r{' ' * width}\r" if width else ""
