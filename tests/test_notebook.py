"""The notebooks: run from a clean kernel, they show what is stored in them.

`python -m tests.test_notebook` runs them and stores the outputs anew.
"""

from __future__ import annotations

import re
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what Jupyter's packages say about each other at import
    import nbformat
    from ipykernel.kernelspec import write_kernel_spec
    from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))
VARIES = "# what it shows differs from machine to machine"  # a cell's first line
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def executed(notebook: Any) -> Any:
    """The notebook with fresh outputs, by this interpreter in a new kernel and an empty folder."""
    fresh = nbformat.from_dict(notebook)
    for cell in fresh.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    with apart() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Jupyter's own
        if any("matplotlib" in cell.source for cell in fresh.cells):
            import_module("matplotlib.font_manager")  # which says so where it has to look for fonts
        client = NotebookClient(
            fresh,
            kernel_name="python3",
            timeout=120,
            coalesce_streams=True,
            record_timing=False,
            resources={"metadata": {"path": str(folder)}},
        )
        client.execute()
    fresh.metadata = nbformat.from_dict(METADATA)
    return fresh


@contextmanager
def apart() -> Iterator[Path]:
    """An empty folder to work in, this interpreter as the kernel, and nothing of the user's."""
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        folder = Path(name)
        for each in ("PATH", "CONFIG_DIR", "DATA_DIR", "RUNTIME_DIR"):
            patch.setenv(f"JUPYTER_{each}", str(folder / "jupyter"))
        patch.setenv("IPYTHONDIR", str(folder / "ipython"))
        write_kernel_spec(str(folder / "jupyter" / "kernels" / "python3"))
        (folder / "work").mkdir()
        yield folder / "work"


def shown(notebook: Any) -> list[tuple[str, list[Any]]]:
    """Each code cell with what it prints and shows, without counts, ids and times.

    Of a picture, and where a cell says that it differs, only that there is something.
    """
    return [
        (cell.source, [plain(output, cell.source.startswith(VARIES)) for output in cell.outputs])
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


def plain(output: Any, varies: bool) -> Any:
    if output.output_type == "error":
        return output.ename, output.evalue
    if output.output_type == "stream":
        return output.name, "" if varies else output.text
    if varies or "image/png" in output.data:
        return sorted(output.data)
    return dict(output.data)


def read(path: Path) -> Any:
    return nbformat.read(path, as_version=4)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_clean_kernel_shows_what_is_stored(path: Path) -> None:
    notebook = read(path)
    assert shown(executed(notebook)) == shown(notebook)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_is_stored_whole_and_lean(path: Path) -> None:
    notebook = read(path)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert notebook.metadata == METADATA
    assert not any(cell.metadata for cell in notebook.cells)
    names = [output.get("name") for cell in code for output in cell.outputs]
    assert "stderr" not in names
    text = path.read_text("utf-8")
    assert not any(place in text for place in ("/home/", "/root/", "/tmp/", "/Users/", "C:\\\\"))
    assert any("text/html" in output.get("data", {}) for cell in code for output in cell.outputs)


def test_a_changed_output_is_noticed() -> None:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("print(1)\nprint(2); 3")])
    fresh = executed(notebook)
    assert shown(fresh) == [
        ("print(1)\nprint(2); 3", [("stdout", "1\n2\n"), {"text/plain": "3"}]),
    ]
    assert shown(fresh) != shown(notebook)


def test_what_differs_from_machine_to_machine_need_only_be_there() -> None:
    source = f"{VARIES}\nimport os\nprint(os.getpid()); os.getpid()"
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source)])
    first, second = shown(executed(notebook)), shown(executed(notebook))
    assert first == second == [(source, [("stdout", ""), ["text/plain"]])]
    assert first != shown(notebook)


CELLS = [
    """import lazyckpt as lz

def half(x):
    return 1 / x

@lz.composite
def halves():
    return lz.map(half) | lz.batch(1)

stream = lz.source([0, 1]) | lz.scan(lambda s, x: (s, x), 0)
pipeline = stream | lz.shuffle(5, seed=0) | lz.map(half)
run = lz.run(pipeline)""",
    "next(run)\nrun",
    "run.state",
    "lz.diff(lz.init(pipeline), run.state)",
    "lz.resume_cost(pipeline, run.state)",
    """for each in (pipeline, lz.source([0]) | halves(), lz.source([0]) | lz.map(half)):
    for executor in (lz.inline(), lz.threads(2)):
        try:
            list(lz.run(each, executor=executor))
        except ZeroDivisionError as error:
            print(error.__notes__[0])""",
]


def test_what_a_cell_shows_and_how_it_is_named() -> None:
    cells = [nbformat.v4.new_code_cell(cell) for cell in CELLS]
    _, run, state, difference, cost, notes = shown(executed(nbformat.v4.new_notebook(cells=cells)))
    for cell, caption in (
        (run, "<div>Run(1 items delivered)</div>"),
        (state, "<caption>State(items=1)</caption>"),
        (difference, "<caption>Difference(+1 items)</caption>"),
        (cost, "<caption>ResumeCost(2 items of the sources again)</caption>"),
    ):
        (output,) = cell[1]
        assert caption in output["text/html"], output
        assert "shuffle" in output["text/html"], output
        assert "moves=(" not in output["text/plain"], output
        assert "stages=(" not in output["text/plain"], output
    ((_, said),) = notes[1]
    places = re.findall(r"built at (\S+),", said)
    assert places == ["In[1]:11"] * 2 + ["In[1]:8"] * 2 + ["In[6]:1"] * 2, said


if __name__ == "__main__":
    for each in NOTEBOOKS:
        nbformat.write(executed(read(each)), each)
