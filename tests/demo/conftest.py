"""Fixtures of these tests."""

from __future__ import annotations

import shutil
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.demo.cases import MODULES, STDLIB


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


@pytest.fixture
def stdlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A little standard library, and a cache of its own."""
    root = tmp_path / "python"
    for place in ("", "json", "site-packages/foreign"):
        (root / place).mkdir(parents=True, exist_ok=True)
    for name in MODULES:
        shutil.copy(STDLIB / name, root / name)
    (root / "json" / "odd.py").write_bytes(b"a\rb\x0c\r\nno newline at the end")
    (root / "latin.py").write_bytes(b"# caf\xe9\n")
    (root / "site-packages" / "foreign" / "other.py").write_text("foreign\n")
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(root))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return root
