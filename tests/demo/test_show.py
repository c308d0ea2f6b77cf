"""The demo's output: one line on a terminal, many elsewhere."""

from __future__ import annotations

import io
import sys

import pytest

from lazyckpt.demo import show


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal_one_line_is_overwritten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", terminal := Terminal())
    screen = show.Screen()
    screen.status("going")
    screen.line("done")
    assert terminal.getvalue() == "going\r     \rdone\n"


def test_elsewhere_only_lines_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    screen = show.Screen()
    screen.status("going")
    screen.line("done")
    screen.clear()
    assert capsys.readouterr().out == "done\n"
