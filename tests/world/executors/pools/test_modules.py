"""Modules that IPython reloads by itself, as workers know them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.executors.faults import script

RELOADS = """
import os, sys
from pathlib import Path
from IPython.core.interactiveshell import InteractiveShell

sys.dont_write_bytecode = True
Path("own.py").write_text("def fn(x): return x\\nclass Own:\\n  def add(self, x): return x + 1")
sys.path.insert(0, ".")
shell = InteractiveShell.instance()

def cell(code):
    shell.run_cell(code).raise_error()

cell("%load_ext autoreload\\n%autoreload 2")
cell("import lazyckpt as lz, own")
cell("adding = own.Own()")
items = "print(*lz.run(lz.source(range(3)) | lz.map({}), executor=lz.processes(2)))"
cell(items.format("own.fn"))
Path("own.py").write_text("def fn(x): return -x\\nclass Own:\\n  def add(self, x): return x + 9")
os.utime("own.py", (1e9, 2e9))  # later, by the clock of files too
cell(items.format("own.fn"))
cell(items.format("adding.add"))
"""


def test_workers_have_the_code_that_autoreload_gives_to_functions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    said = script(tmp_path, RELOADS)
    assert said == "0 1 2\n0 -1 -2\n9 10 11\n"
