"""The recipes of the guides on reading anything else, against the packages that they are for."""

from __future__ import annotations

import importlib
import json
import pickle
import subprocess
import sys
import wave
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import lazyckpt as lz
from lazyckpt.testing import equal
from tests.pages import NOTEBOOKS, blocks, cells

PAGE = (NOTEBOOKS / "how-to" / "read-anything.md").read_text("utf-8")
RECIPES = {
    section.partition("\n")[0]: [*blocks(section, "python")] for section in PAGE.split("\n## ")[1:]
}
WORDS = [f"word {n}" for n in range(40)]


def zarr_array() -> list[Any]:
    zarr = importlib.import_module("zarr")
    made = np.arange(40 * 6).reshape(40, 2, 3)
    array = zarr.create_array("images.zarr", shape=made.shape, chunks=(7, 2, 3), dtype=made.dtype)
    array[:] = made
    return list(made)


def duckdb_table() -> list[Any]:
    duckdb = importlib.import_module("duckdb")
    with duckdb.connect("words.duckdb") as connection:
        connection.execute("CREATE TABLE given (id INTEGER, word TEXT)")
        connection.executemany(
            "INSERT INTO given VALUES (?, ?)", [(-n, word) for n, word in enumerate(WORDS)]
        )
        numbered = "SELECT row_number() OVER (ORDER BY id) - 1 AS n, word FROM given"
        connection.execute(f"CREATE TABLE words AS {numbered}")
    return list(enumerate(reversed(WORDS)))


def lance_table() -> list[Any]:
    lancedb = importlib.import_module("lancedb")
    rows = [{"n": n, "word": word} for n, word in enumerate(WORDS)]
    table = lancedb.connect("data").create_table("words", rows[:15])
    table.add(rows[15:])
    return rows


def litdata_chunks() -> list[Any]:
    reason = "pip install --no-deps litdata tifffile"
    litdata = pytest.importorskip("litdata.streaming", reason=reason)
    rows = [{"n": n, "word": word} for n, word in enumerate(WORDS)]
    cache = litdata.Cache("chunks", chunk_size=6)
    for number, row in enumerate(rows):
        cache[number] = row
    cache.done()
    cache.merge()
    return rows


def images() -> list[Any]:
    library = importlib.import_module("PIL.Image")
    rows = []
    for n in range(40):
        label, pixels = ("cat", "dog")[n // 25], np.full((4, 5, 3), n, np.uint8)
        path = Path("images", label, f"{n:02}.png")
        path.parent.mkdir(parents=True, exist_ok=True)
        library.fromarray(pixels).save(path)
        rows.append({"label": label, "pixels": pixels})
    return rows


def sounds() -> list[Any]:
    Path("sounds").mkdir()
    rows = []
    for n in range(10):
        samples = (np.arange(2000) % (n + 2) * 1000).astype("<i2")
        with wave.open(f"sounds/{n}.wav", "wb") as file:
            file.setnchannels(2), file.setsampwidth(2), file.setframerate(16_000)
            file.writeframes(samples.tobytes())
        rows.append((samples.reshape(-1, 2).T / 2**15).astype("f4"))
    return rows


WRITTEN: dict[str, Callable[[], list[Any]]] = {
    "Zarr": zarr_array,
    "DuckDB": duckdb_table,
    "LanceDB": lance_table,
    "litData": litdata_chunks,
    "A folder of images": images,
    "Audio": sounds,
}

RESUMED = """
import pickle, sys
import lazyckpt as lz
import {module} as recipe
from pathlib import Path

if __name__ == "__main__":
    rows = recipe.rows | lz.shuffle(seed=3) | lz.repeat(2) | lz.batch(4)
    state = lz.State.from_json(Path("state.json").read_text())
    with lz.run(rows, state, executor=lz.processes(2)) as run:
        Path("rest.pickle").write_bytes(pickle.dumps([*run]))
"""


def recipe(title: str, place: Path, patch: pytest.MonkeyPatch) -> ModuleType:
    """The code of a section, as a module in a folder that becomes the current one."""
    (code,) = RECIPES[title]
    name = f"recipe_{'_'.join(title.lower().split())}"
    (place / f"{name}.py").write_text(f"import lazyckpt as lz\n\n{code}", "utf-8")
    patch.syspath_prepend(place)
    patch.delitem(sys.modules, name, raising=False)
    return importlib.import_module(name)


def test_each_recipe_has_its_data() -> None:
    assert RECIPES.keys() == WRITTEN.keys()


@pytest.mark.filterwarnings("ignore")  # of others' packages
@pytest.mark.parametrize("title", WRITTEN)
def test_rows_are_those_written(
    title: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    expected = WRITTEN[title]()
    made = recipe(title, tmp_path, monkeypatch)
    rows = made.rows
    assert equal(list(rows), expected)
    assert equal([rows[i] for i in range(-1, len(expected))], [expected[-1], *expected])
    order = [*lz.source(range(len(expected))) | lz.shuffle(seed=3) | lz.repeat(2)]
    batches = [[expected[i] for i in order[n : n + 4]] for n in range(0, len(order), 4)]
    mixed = rows | lz.shuffle(seed=3) | lz.repeat(2) | lz.batch(4)
    assert equal(list(mixed), batches)
    assert equal(mixed[2], batches[2])
    with lz.run(mixed, executor=lz.threads(2)) as run:
        assert equal([next(run), next(run), next(run)], batches[:3])
        state = run.state.to_json()
    json.loads(state)
    (tmp_path / "state.json").write_text(state)
    script = tmp_path / "resumed.py"
    script.write_text(RESUMED.format(module=made.__name__))
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert equal(pickle.loads((tmp_path / "rest.pickle").read_bytes()), batches[3:])


@pytest.mark.parametrize("executor", [None, lz.threads(2), lz.processes(1)], ids=str)
def test_the_guide_to_image_folders_names_a_damaged_image(executor: lz.Executor | None) -> None:
    made: dict[str, Any] = {"__name__": __name__}
    exec("\n".join(cells(NOTEBOOKS / "how-to" / "image-folders.md")), made)
    with made["scratch"]:
        damaged = made["folder"] / "cats" / "2.png"
        damaged.write_bytes(damaged.read_bytes()[:60])
        rows = lz.io.read_files(f"{made['folder']}/**/*.png") | lz.map(made["decode"])
        message = r"cats/2\.png can't be decoded: image file is truncated"
        with lz.run(rows, executor=executor) as run, pytest.raises(ValueError, match=message):
            list(run)
        with lz.run(rows, executor=executor, on_error="skip") as run:
            assert len(list(run)) == len(made["files"]) - 1
        assert "cats/2.png" in run.skipped.first[0]
