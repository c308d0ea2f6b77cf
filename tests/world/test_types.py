"""mypy and pyright report an ignore that hides no error: `tests/types` relies on it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def said(*command: str) -> str:
    """The output of a type checker, as pyproject.toml configures it."""
    command = (sys.executable, "-m", *command)
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280).stdout


def test_an_ignore_without_an_error_is_one(tmp_path: Path) -> None:
    file = tmp_path / "needless.py"
    file.write_text("_ = 1 + 1  # type: ignore[operator]  # pyright: ignore[reportOperatorIssue]\n")
    config = str(ROOT / "pyproject.toml")
    mypy = said("mypy", "--config-file", config, "--cache-dir", str(tmp_path), str(file))
    assert "unused-ignore" in mypy
    assert "reportUnnecessaryTypeIgnoreComment" in said("pyright", str(file))
