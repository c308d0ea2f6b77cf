"""Locks between processes, and a system that has none."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys

import pytest

from lazyckpt.io.cache import exclusive_lock
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


@pytest.mark.parametrize("is_folder", [True, False])
def test_one_holds_a_lock(is_folder: bool) -> None:
    path = str(folder() / ("" if is_folder else "a"))
    with exclusive_lock(path), pytest.raises(BlockingIOError), exclusive_lock(path, waits=False):
        pass
    with exclusive_lock(path, waits=False):
        pass


NO_LOCKS = """
#include <errno.h>
int flock(int file, int operation) { errno = ENOSYS; return -1; }
"""

BUILDING = """
import os, signal, sys
from pathlib import Path
import lazyckpt as lz
from lazyckpt.io.text import LineScan

place, is_killed = Path(sys.argv[1]), sys.argv[2] == "killed"
scan = LineScan.__call__

def met(self, file):
    yield from scan(self, file)
    (place / f"met-{os.getpid()}").touch()
    while len([*place.glob("met-*")]) < 2:  # both build at once
        pass
    if is_killed:
        os.kill(os.getpid(), signal.SIGKILL)

LineScan.__call__ = met
rows = lz.io.read_text(f"{place}/data/*.txt", index_dir=place / "index")
found = lz.io.convert(rows, place / f"new-{sys.argv[2]}", format="jsonl.zst", rows_per_file=2)
cache = lz.io.range_cache.RangeCache(str(place / "cache"), 1 << 20)
content = b"abc" * 1000
for start in range(0, 3000, 500):
    part = start, start + 9
    (got,) = cache.read_ranges("a", 3000, [part], lambda spans: [content[slice(*s)] for s in spans])
    assert got == content[slice(*part)]
print(rows[:], lz.io.read_jsonl(found, index_dir=place / "index")[:])
"""


@pytest.fixture(scope="module")
def without_locks() -> dict[str, str]:
    """An environment in which `flock` fails, as on Lustre that is mounted without it."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or sys.platform != "linux":
        pytest.skip("there is no compiler for a library to preload")
    place = folder()
    (place / "no_locks.c").write_text(NO_LOCKS)
    library = place / "no_locks.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, place / "no_locks.c"], check=True)
    return {**os.environ, "LD_PRELOAD": str(library), "PYTHONPATH": os.pathsep.join(sys.path)}


@pytest.mark.parametrize("other", ["whole", "killed"])
def test_where_files_have_no_locks_two_build_the_same(
    without_locks: dict[str, str], other: str
) -> None:
    place = folder()
    (place / "data").mkdir()
    (place / "data" / "a.txt").write_text("a\nb\nc\n")
    command = [sys.executable, "-c", BUILDING, str(place)]
    one, two = (
        subprocess.Popen([*command, kind], env=without_locks, stdout=subprocess.PIPE, text=True)
        for kind in ("one", other)
    )
    expected = f"{[*'abc']} {[*'abc']}\n"
    assert (one.communicate()[0], one.returncode) == (expected, 0)
    if other == "killed":
        assert (two.communicate()[0], two.returncode) == ("", -signal.SIGKILL)
    else:
        assert (two.communicate()[0], two.returncode) == (expected, 0)
    index = {path.name for path in (place / "index").iterdir() if path.suffix != ".tmp"}
    assert {name.rpartition(".")[2] for name in index} >= {"index", "counts"}
