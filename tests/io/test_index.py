"""Indices: kept, verified, built by one process, whole or not at all."""

from __future__ import annotations

import gzip
import multiprocessing
import os
import pickle
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import lazyckpt as lz
from lazyckpt.io import File, Files, Index
from lazyckpt.io.cache import atomic_writer, build_lock, cache_folder, exclusive_lock
from lazyckpt.io.text import LineScan
from tests.helpers import printed, until
from tests.io.cases import folder, written


class Noted:
    """A scan that notes in a file the rows it scans: one row per byte."""

    columns, is_bounds, name = 2, False, "noted"

    def __init__(self, log: Path, bad: str = "") -> None:
        self.log, self.bad = log, bad

    def __call__(self, file: File) -> Iterator[NDArray[Any]]:
        with open(self.log, "a") as out:
            out.write(f"{Path(file.path).stem}\n")
        if Path(file.path).stem == self.bad:
            raise ValueError("bad")
        for place in range(file.size):
            yield np.array([[place, place + 1]], np.uint64)


@pytest.fixture
def place() -> Path:
    return folder()


FILES = [b"abc", b"", b"de"]


def test_an_index_is_built_once(place: Path) -> None:
    scan, files = Noted(place / "log"), written(FILES, ".bin")
    for _ in range(2):
        found = Index(files, scan, place)
        assert found.counts.tolist() == [3, 0, 2]
        assert found.entries(2).tolist() == [[0, 1], [1, 2]]
        assert found.entries(1).tolist() == []
    assert pickle.loads(pickle.dumps(found)).entries(0).tolist() == found.entries(0).tolist()
    assert scan.log.read_text().split() == ["000", "001", "002"]


def test_a_file_that_is_added_or_changed_is_scanned_alone(place: Path) -> None:
    scan, files = Noted(place / "log"), written(FILES, ".bin")
    Index(files, scan, place)
    Path(files.root, "003.bin").write_bytes(b"new")
    Path(files[0].path).write_bytes(b"changed")
    again = Index(lz.io.files(f"{files.root}/*"), scan, place)
    assert again.counts.tolist() == [7, 0, 2, 3]
    assert scan.log.read_text().split() == ["000", "001", "002", "000", "003"]


def test_a_build_goes_on_where_one_ended(place: Path) -> None:
    files = written(FILES, ".bin")
    with pytest.raises(ValueError, match="bad"):
        Index(files, Noted(place / "log", bad="002"), place)
    assert Index(files, Noted(place / "log"), place).counts.tolist() == [3, 0, 2]
    assert (place / "log").read_text().split() == ["000", "001", "002", "002"]
    assert not list(place.glob("*.tmp"))


def test_an_index_beside_its_files_moves_with_them(place: Path) -> None:
    scan, data = Noted(place / "log"), place / "data"
    data.mkdir()
    for number, content in enumerate(FILES):
        (data / f"{number:03}.bin").write_bytes(content)
    for each in ("data", "index"):
        Index(lz.io.files(f"{data}/*.bin"), scan, place / each)
    scans = scan.log.read_text()
    os.rename(place, place.with_name("moved"))
    place = place.with_name("moved")
    scan = Noted(place / "log")
    for each in ("data", "index"):
        Index(lz.io.files(f"{place}/data/*.bin"), scan, place / each)
    assert scan.log.read_text() == scans


def test_what_a_killed_process_has_begun_is_removed(place: Path) -> None:
    files = written([b"a\n"], ".txt")
    code = f"""
import os, signal
from lazyckpt.io.cache import atomic_writer
with atomic_writer({str(place / "a.index")!r}) as path:
    open(path, "w").close()
    os.kill(os.getpid(), signal.SIGKILL)
"""
    subprocess.run([sys.executable, "-c", code], check=False)
    (left,) = place.glob("*.tmp")
    os.utime(left, (1, 1))  # long before
    with atomic_writer(str(place / "b.index")) as path:
        Path(path).touch()  # of one that is alive
        lz.io.read_text(files, index_dir=place)
        assert list(place.glob("*.tmp")) == [Path(path)]


@pytest.mark.parametrize("damage", ["truncated", "empty", "overwritten", "removed"])
@pytest.mark.parametrize("which", ["index", "counts"])
def test_a_damaged_index_is_built_anew(place: Path, damage: str, which: str) -> None:
    scan, files = Noted(place / "log"), written(FILES, ".bin")
    Index(files, scan, place)
    for path in place.glob(f"*.{which}"):
        content = path.read_bytes()
        found = {"truncated": content[:-9], "empty": b"", "overwritten": bytes(len(content))}
        os.remove(path) if damage == "removed" else path.write_bytes(found[damage])
    assert Index(files, scan, place).entries(0).tolist() == [[0, 1], [1, 2], [2, 3]]


def test_an_index_of_other_counts_is_refused(place: Path) -> None:
    files = written([b"ab\n"], ".txt")
    found = Index(files, LineScan("none", ""), place)
    other = Index(written([b"a\nb\n"], ".txt"), LineScan("none", ""), place)
    os.replace(other.path(0), found.path(0))
    with pytest.raises(lz.PipelineError, match=rf"damaged: remove {found.path(0)}"):
        found.entries(0)


def test_bounds_that_do_not_ascend_are_refused(place: Path) -> None:
    files = written([b"ab\ncd\n"], ".txt")
    rows = lz.io.read_text(files, index_dir=place)
    path = Path(rows.row_index.path(0))
    path.write_bytes(np.array([3], "<u8").tobytes() + path.read_bytes()[8:])
    again = lz.io.read_text(files, index_dir=place)
    again.row_index.entries(0)
    path.write_bytes(np.array([9], "<u8").tobytes() + path.read_bytes()[8:])
    with pytest.raises(lz.PipelineError, match=f"damaged: remove {path}"):
        lz.io.read_text(files, index_dir=place)[0]


def test_a_folder_that_can_not_be_written_is_named(place: Path) -> None:
    files = written(FILES, ".bin")
    for name in ("full", "full/folder", "full/a/folder"):
        (place / "full").touch()
        with pytest.raises(lz.PipelineError, match=r"can't be written to .*full.*LAZYCKPT_CACHE"):
            Index(files, Noted(place / "log"), place / name)


def test_no_room_is_told(place: Path) -> None:
    """A limit on the size of files stands for a full disk."""
    files = written([b"x\n" * 5000], ".txt")
    code = f"""
import resource, signal, lazyckpt as lz
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
try:
    lz.io.read_text({files[0].path!r}, index_dir={str(place)!r})
except lz.PipelineError as error:
    print(error)
"""
    assert f"the index can't be written to {place}" in printed(code)
    assert not list(place.glob("*.tmp"))
    assert len(lz.io.read_text(files, index_dir=place)) == 5000


def test_a_file_that_changes_while_it_is_scanned_is_named(place: Path) -> None:
    files = written(FILES, ".bin")

    class Changing(Noted):
        def __call__(self, file: File) -> Iterator[NDArray[Any]]:
            Path(file.path).write_bytes(b"longer than before")
            return super().__call__(file)

    with pytest.raises(lz.SourceChanged, match=r"000\.bin changed since it was listed"):
        Index(files, Changing(place / "log"), place)


def _build(files: Files, scan: Noted, place: Path) -> None:
    assert Index(files, scan, place).counts.sum() == sum(file.size for file in files)


def test_one_process_builds_while_others_wait(place: Path) -> None:
    files, scan = written([b"x" * 300] * 8, ".bin"), Noted(place / "log")
    context = multiprocessing.get_context("fork")
    builders = [context.Process(target=_build, args=(files, scan, place)) for _ in range(4)]
    for builder in builders:
        builder.start()
    for builder in builders:
        builder.join()
    assert [builder.exitcode for builder in builders] == [0] * 4
    assert sorted(scan.log.read_text().split()) == [f"{n:03}" for n in range(8)]
    assert not [*place.glob("*.tmp")]


class Slow(Noted):
    def __call__(self, file: File) -> Iterator[NDArray[Any]]:
        yield from super().__call__(file)
        if Path(file.path).stem == "002":
            signal.pause()


def test_a_builder_that_is_killed_leaves_what_it_did(place: Path) -> None:
    files = written([b"abc"] * 4, ".bin")
    context = multiprocessing.get_context("fork")
    builder = context.Process(target=_build, args=(files, Slow(place / "log"), place))
    builder.start()
    until(lambda: (place / "log").exists() and "002" in (place / "log").read_text())
    builder.kill()
    builder.join()
    scan = Noted(place / "log")
    assert Index(files, scan, place).counts.tolist() == [3] * 4
    assert scan.log.read_text().split() == ["000", "001", "002", "002", "003"]


def test_what_a_builder_has_forked_does_not_keep_its_lock(place: Path) -> None:
    here, there = socket.socketpair()
    with build_lock(f"{place}/lock", lambda: None):
        if not (child := os.fork()):
            here.close()
            there.send(b"1")
            there.recv(1)
            os._exit(0)
        there.close()
        here.recv(1)  # by now it has closed the files it inherited
    with exclusive_lock(f"{place}/lock", waits=False):
        pass
    here.close()
    assert os.waitpid(child, 0)[1] == 0


def test_entries_that_are_removed_while_others_are_found_are_found_again(place: Path) -> None:
    """Like builders whose cache folder has no space left."""
    files = written(FILES, ".bin")

    class Removing(Noted):
        def __call__(self, file: File) -> Iterator[NDArray[Any]]:
            for path in place.glob("*.index"):
                path.unlink()
            return super().__call__(file)

    found = Index(files, Removing(place / "log"), place)
    assert found.counts.tolist() == [3, 0, 2]
    assert [len(found.entries(number)) for number in (0, 1, 2)] == [3, 0, 2]
    assert not [*place.glob("*.lock")]


@pytest.mark.parametrize("executor", [lz.threads(2), lz.processes(2)])
def test_files_are_scanned_in_parallel(place: Path, executor: lz.Executor) -> None:
    scan, files = Noted(place / "log"), written(FILES, ".bin")
    found = lz.io.index(files, scan, index_dir=place, executor=executor, progress=True)
    assert found.counts.tolist() == [3, 0, 2]
    assert sorted(scan.log.read_text().split()) == ["000", "001", "002"]


def test_the_cache_folder_is_what_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAZYCKPT_CACHE", "/some/folder")
    assert cache_folder() == "/some/folder"
    monkeypatch.delenv("LAZYCKPT_CACHE")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert cache_folder() == "/caches/lazyckpt"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # of a user without a home
    assert cache_folder() == f"{gettempdir()}/lazyckpt-{os.getuid()}"


def test_a_warm_index_of_many_files_opens_one(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = written([b"%d\n" % number for number in range(300)], ".txt")
    rows = lz.io.read_text(files, index_dir=place)
    opened: list[Any] = []
    module = import_module("lazyckpt.io.cache")
    plain = module.read_footer
    monkeypatch.setattr(module, "read_footer", lambda file: opened.append(file) or plain(file))
    again = lz.io.read_text(files, index_dir=place)
    assert (len(again), len(opened)) == (300, 1)
    assert again[299] == rows[299] == "299"
    assert len(opened) > 1


@pytest.mark.parametrize("is_cache", [True, False])
def test_indices_of_the_cache_folder_that_are_not_used_make_room(
    place: Path, monkeypatch: pytest.MonkeyPatch, is_cache: bool
) -> None:
    texts = [written([b"a\nb\n" * 99], ".txt") for _ in range(3)]
    monkeypatch.setenv("LAZYCKPT_CACHE", str(place if is_cache else place / "other"))
    opened = [lz.io.read_text(files, index_dir=place) for files in texts[:2]]
    for path in place.iterdir():
        os.utime(path, (1, 1))
    assert lz.io.read_text(texts[0], index_dir=place)[1] == "b"  # so that it is used last
    monkeypatch.setenv("LAZYCKPT_CACHE_BYTES", "2000")
    lz.io.read_text(texts[2], index_dir=place)
    is_kept = [os.path.exists(rows.row_index.path(0)) for rows in opened]
    assert is_kept == [True, not is_cache]
    assert lz.io.read_text(texts[1], index_dir=place)[1] == opened[1][1] == "b"


def _read_often(folder: Path) -> None:
    for number in range(8):
        files = lz.io.files(f"{folder}/*")
        assert lz.io.read_text(files, compression="gzip")[:] == ["a line"] * 60
        for file in files:
            os.utime(file.path, (number, number))


def test_builders_that_make_room_for_one_another(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAZYCKPT_CACHE", str(place))
    monkeypatch.setenv("LAZYCKPT_CACHE_BYTES", "1")
    folders = [written([gzip.compress(b"a line\n" * 20)] * 3, ".txt.gz").root for _ in range(4)]
    context = multiprocessing.get_context("fork")
    builders = [context.Process(target=_read_often, args=(folder,)) for folder in folders]
    for builder in builders:
        builder.start()
    for builder in builders:
        builder.join()
    assert [builder.exitcode for builder in builders] == [0] * 4
    assert not [*place.glob("*.lock"), *place.glob("*.tmp")]


def test_a_size_of_the_cache_folder_that_is_none_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAZYCKPT_CACHE_BYTES", "16 GiB")
    with pytest.raises(lz.ArgumentError, match="LAZYCKPT_CACHE_BYTES must be a number of bytes"):
        lz.io.read_text(written([b"a\n"], ".txt"))
