"""The demo of several ranks: real processes, of which one is killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from lazyckpt.demo import show
from tests.demo.cases import TIMEOUT

pytestmark = pytest.mark.timeout(TIMEOUT)


def text(folder: Path, lines: int) -> list[str]:
    (folder / "text").write_text("".join(f"line {number}\n" for number in range(lines)))
    return [str(folder)]


def test_a_rank_is_killed_and_the_rows_are_those_of_one_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert show.demo(text(tmp_path, 20_000), 3, kills=0, lines=20_000, seed=1) == 0
    shown = capsys.readouterr().out
    assert "is killed" in shown
    assert shown.count("   as one rank alone") == 2
    assert "DIFFERENT" not in shown


def test_too_few_lines_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert show.demo(text(tmp_path, 100), 8, kills=0, lines=10_000, seed=1) == 1
    assert "too few lines for 8 ranks" in capsys.readouterr().err
