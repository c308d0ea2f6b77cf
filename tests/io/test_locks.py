"""Locks between processes, and a system that has none."""

from __future__ import annotations

from pathlib import Path

import pytest

from lazyckpt.io.locks import folder_lock, lock, unlock
from tests.helpers import printed
from tests.io.cases import folder

WITHOUT = """
import sys
sys.modules["fcntl"] = None
import lazyckpt as lz
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from lazyckpt import io, lineage
from lazyckpt.io.range_cache import RangeCache

for package in (io, lineage):
    for module in iter_modules(package.__path__, f"{package.__name__}."):
        import_module(module.name)
place = Path(PLACE)
files = lz.io.convert(["a", "b"], place / "new", format="jsonl.zst", rows_per_file=1)
print(lz.io.read_jsonl(files, index_dir=place / "index")[:])
cache = RangeCache(str(place / "cache"), 1 << 20)
print(cache.read_ranges("a", 3, [(1, 3)], lambda ranges: [b"abc"]))
"""


def test_without_fcntl_there_are_no_locks_and_all_else_works() -> None:
    code = WITHOUT.replace("PLACE", repr(str(folder())))
    assert printed(code).splitlines() == ["['a', 'b']", "[b'bc']"]


def test_one_holds_the_lock_of_a_folder() -> None:
    place = str(folder())
    with folder_lock(place), pytest.raises(BlockingIOError), folder_lock(place, waits=False):
        pass
    with folder_lock(place, waits=False):
        pass


def test_one_holds_the_lock_of_a_file() -> None:
    path = Path(folder(), "a")
    with open(path, "wb") as one, open(path, "wb") as other:
        lock(one)
        with pytest.raises(BlockingIOError):
            lock(other, waits=False)
        unlock(one)
        lock(other, waits=False)
