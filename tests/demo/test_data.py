"""The demo's data: texts of the user's, and the library's chunks."""

from __future__ import annotations

import gzip
import io
import os
import signal
import subprocess
import sys
import sysconfig
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from lazyckpt.cli.main import main
from lazyckpt.demo import data
from tests.demo.cases import MODULES, TIMEOUT


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("missing.txt", None, "no such file or folder: 'missing.txt'"),
        ("empty.txt", b"", "the file is empty: 'empty.txt'"),
        ("empty.gz", gzip.compress(b""), "no line of text in 'empty.gz'"),
        ("latin.txt", b"caf\xe9\n", "not UTF-8 text: 'latin.txt', line 1: "),
        ("plain.gz", b"plain\n", "not a whole gzip file: 'plain.gz': "),
        ("short.gz", gzip.compress(b"one\n" * 99)[:-9], "not a whole gzip file: 'short.gz': "),
        ("flipped.gz", gzip.compress(b"one\n")[:-8] + b"12345678", "not a whole gzip file: "),
    ],
    ids=lambda each: each if isinstance(each, str) and len(each) < 12 else "",
)
def test_bad_data_is_an_error_that_names_it(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
    content: bytes | None,
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    if content is not None:
        Path(name).write_bytes(content)
    assert main(["demo", "--data", name]) == 2
    assert capsys.readouterr().err.startswith(f"lazyckpt demo: {message}")


def test_bad_folders_and_pipes_are_errors(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(data.BadData, match="no file in the folder"):
        data.users([str(tmp_path / "folder")])
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(data.BadData, match="not a regular file"):
        data.users([str(tmp_path / "pipe")])


def cached(stdlib: Path) -> list[str]:
    return sorted(path.name for path in (stdlib.parent / "cache" / "lazyckpt").iterdir())


def test_the_library_is_cut_once_into_all_its_lines(stdlib: Path) -> None:
    told: list[str] = []
    first, second = data.library(told.append), data.library(told.append)
    assert first == second
    assert len(told) == 1
    assert len(first.names) == 64
    assert first.files == len(MODULES) + 1
    found = [line for name in first.names for line in data.lines_of(first.folder / name)]
    odd = [b"a\rb\x0c\r\n", b"no newline at the end\n"]
    expected = [line for name in MODULES for line in io.BytesIO((stdlib / name).read_bytes())]
    assert sorted(found) == sorted(expected + odd)
    assert first.lines == len(found)


def test_a_cut_that_fails_leaves_nothing(stdlib: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        numbers = count()

        def compress(*args: Any, real: Any = gzip.compress, **kwargs: Any) -> Any:
            if next(numbers) == 30:
                raise KeyboardInterrupt
            return real(*args, **kwargs)

        patch.setattr(gzip, "compress", compress)
        with pytest.raises(KeyboardInterrupt):
            data.library()
    assert cached(stdlib) == []
    assert data.library().lines


def test_a_cut_that_is_killed_leaves_no_half_cache(stdlib: Path) -> None:
    code = (
        "import gzip, itertools, os, signal, sysconfig\n"
        "from lazyckpt.demo import data\n"
        f"sysconfig.get_path = lambda name: {str(stdlib)!r}\n"
        "numbers, real = itertools.count(), gzip.compress\n"
        "def compress(*args, **kwargs):\n"
        "    if next(numbers) == 30:\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return real(*args, **kwargs)\n"
        "gzip.compress = compress\n"
        "data.library()\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], timeout=TIMEOUT)
    assert ended.returncode == -signal.SIGKILL
    (left,) = cached(stdlib)
    assert ".part-" in left
    whole = data.library()
    assert cached(stdlib) == [whole.folder.name, left]


def test_two_cuts_at_once_both_succeed(stdlib: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inner: list[data.Text] = []
    with monkeypatch.context() as patch:

        def compress(*args: Any, real: Any = gzip.compress, **options: Any) -> bytes:
            if not inner:
                patch.undo()
                inner.append(data.library())
            return real(*args, **options)  # type: ignore[no-any-return]

        patch.setattr(gzip, "compress", compress)
        outer = data.library()
    assert inner == [outer]
    assert cached(stdlib) == [outer.folder.name]


def test_damaged_or_stale_chunks_are_not_used(stdlib: Path) -> None:
    first = data.library()
    (first.folder / first.names[7]).write_bytes(b"")
    assert data.library() == first
    assert (first.folder / first.names[7]).stat().st_size
    (stdlib / "new.py").write_text("new = 1\n")
    second = data.library()
    assert second.lines == first.lines + 1
    assert second.folder != first.folder


def test_no_library_or_no_cache_is_bad_data(
    stdlib: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    occupied = stdlib.parent / "occupied"
    occupied.write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(occupied))
    assert main(["demo"]) == 2
    assert "set XDG_CACHE_HOME" in capsys.readouterr().err
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(stdlib / "nowhere"))
    assert main(["demo"]) == 2
    assert "--data" in capsys.readouterr().err
