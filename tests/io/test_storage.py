"""Local files: open files, changed files, threads."""

from __future__ import annotations

import os
import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

import lazyckpt as lz
from lazyckpt.io import storage
from lazyckpt.io.storage import LocalStorage
from tests.helpers import in_fork
from tests.io.cases import folder, written
from tests.io.table import FORMATS


def is_open(path: str) -> bool:
    descriptors = Path("/proc/self/fd")
    return any(os.path.realpath(each) == path for each in descriptors.iterdir())


def test_few_files_stay_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "MOST_OPEN", 2)
    files, local = written([b"a", b"b", b"c"], ".bin"), LocalStorage()
    assert [local.read(file, 0, 1) for file in files] == [b"a", b"b", b"c"]
    assert [is_open(file.path) for file in files] == [False, True, True]
    del local
    assert not any(is_open(file.path) for file in files)


def test_a_file_that_was_replaced_and_listed_again_is_read() -> None:
    place, local = folder(), LocalStorage()
    Path(place, "a").write_bytes(b"old")
    (old,) = lz.io.files(place / "a")
    assert local.read(old, 0, 3) == b"old"
    Path(place, "b").write_bytes(b"newer")
    os.replace(place / "b", place / "a")
    assert local.read(old, 0, 3) == b"old"  # which is still open
    (new,) = lz.io.files(place / "a")
    assert local.read(new, 0, 5) == b"newer"
    with pytest.raises(lz.SourceChanged, match="it had 3 bytes and has 5"):
        LocalStorage().read(old, 0, 3)
    os.truncate(place / "a", 2)
    with pytest.raises(lz.SourceChanged, match="it had 5 bytes and has 2"):
        local.read(new, 0, 1)


def fails(rows: lz.io.Rows[Any], message: str) -> int:
    """0 if a process without rights is told why it can't read rows, which it never leaves out."""
    storage.local_storage = LocalStorage()  # which has nothing open
    if os.getuid() == 0:
        os.setuid(65534)
    try:
        fresh = pickle.loads(pickle.dumps(rows))  # which has nothing open
        with lz.run(lz.source(fresh), on_error="skip") as run:
            list(run)
    except lz.errors.StorageError as error:
        return message not in str(error)
    return 2


@pytest.mark.parametrize("name", FORMATS)
def test_what_may_not_be_read_is_never_left_out(name: str) -> None:
    form = FORMATS[name]
    with TemporaryDirectory() as top:
        os.chmod(top, 0o755)
        for file, content in form.example.files.items():
            Path(top, file).write_bytes(content)
        rows = form.read(f"{top}/{form.pattern}", index_dir=f"{top}/index")
        for each in Path(top).rglob("*"):
            os.chmod(each, 0o755)
        path = rows.files[0].path
        os.chmod(path, 0)
        assert in_fork(lambda: fails(rows, f"{path} can't be read: ")) == 0


def test_threads_share_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "MOST_OPEN", 1)
    files, local = written([b"%03d" % n * 50 for n in range(8)], ".bin"), LocalStorage()

    def read(number: int) -> bool:
        file = files[number % 8]
        return local.read(file, 30, 90) == b"%03d" % (number % 8) * 20

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(read, range(800)))
