"""mypy and pyright agree on the types of pipelines, and on the pipes that they refuse."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def said(*command: str) -> str:
    """The output of a type checker for the files, as pyproject.toml configures it."""
    found = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    return found.stdout + found.stderr


def test_mypy_finds_every_type_and_refuses_ill_typed_pipes(tmp_path: Path) -> None:
    found = said("mypy", "-p", "tests.types", "--cache-dir", str(tmp_path))
    assert found.startswith("Success: no issues found in 3 source files"), found


def test_pyright_finds_every_type_and_refuses_ill_typed_pipes() -> None:
    found = said("pyright", "--pythonpath", sys.executable)
    assert "0 errors, 0 warnings" in found, found


def test_an_ignore_without_an_error_is_one(tmp_path: Path) -> None:
    file = tmp_path / "needless.py"
    file.write_text("_ = 1 + 1  # type: ignore[operator]  # pyright: ignore[reportOperatorIssue]\n")
    config = str(ROOT / "pyproject.toml")
    mypy = said("mypy", "--config-file", config, "--cache-dir", str(tmp_path), str(file))
    assert "unused-ignore" in mypy
    assert "reportUnnecessaryTypeIgnoreComment" in said("pyright", str(file))
