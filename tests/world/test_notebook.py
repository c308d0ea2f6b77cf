"""The notebooks: run from a clean kernel, they show the outputs that are stored in them.

`python -m tests.world.test_notebook` runs them all, or the named ones, and stores their outputs
and the pictures of the README again.
"""

from __future__ import annotations

import re
import sys
import tempfile
import warnings
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what Jupyter's packages say about each other at import
    import nbformat
    from ipykernel.kernelspec import write_kernel_spec
    from matplotlib.figure import Figure
    from matplotlib.image import imread
    from nbclient import NotebookClient

FOLDER = Path(__file__).parents[2] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
IMAGES = {"loss-curves.png": ("digits", "loss-curves")}  # each out of a notebook's cell
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
            import_module("matplotlib.font_manager")  # it says so if it has to look for fonts
        client = NotebookClient(
            fresh,
            kernel_name="python3",
            timeout=300,
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
    """Each code cell with its output, without counts, ids and times.

    For a picture, and if a cell says that its output differs, only that there is an output.
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


def pictures(notebook: Any, cell_id: str | None = None) -> list[bytes]:
    """The PNG files that its cells show, or that one of them does."""
    return [
        b64decode(output.data["image/png"])
        for cell in notebook.cells
        if cell.cell_type == "code" and cell_id in (None, cell.id)
        for output in cell.outputs
        if "image/png" in output.get("data", {})
    ]


def is_empty(picture: bytes) -> bool:
    """Whether it has at most a frame and a title."""
    return bool(imread(BytesIO(picture))[..., :3].std() < 0.12)


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
    for cell in notebook.cells:
        is_aside = cell.source.startswith("plt.style.use") or cell.source == "folder.cleanup()"
        assert cell.metadata == ({"tags": ["remove-cell"]} if is_aside else {})
    names = [output.get("name") for cell in code for output in cell.outputs]
    assert "stderr" not in names
    text = path.read_text("utf-8")
    assert not any(place in text for place in ("/home/", "/root/", "/tmp/", "/Users/", "C:\\\\"))
    assert any("text/html" in output.get("data", {}) for cell in code for output in cell.outputs)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_begins_with_a_title_and_has_pictures(path: Path) -> None:
    notebook = read(path)
    title, _, said = notebook.cells[0].source.partition("\n\n")
    assert re.fullmatch("# .+", title)
    assert said.strip()
    assert pictures(notebook)
    assert not any(map(is_empty, pictures(notebook)))


def test_the_notebooks_look_alike() -> None:
    styles = [
        cell.source
        for path in NOTEBOOKS
        for cell in read(path).cells
        if "plt.style.use" in cell.source
    ]
    assert len(styles) >= 8
    assert len(set(styles)) == 1


def test_an_empty_picture_is_noticed() -> None:
    figure = Figure(figsize=(6, 3.6), dpi=120)
    axes = figure.subplots()
    axes.set_title("Nothing to be seen")
    empty, drawn = BytesIO(), BytesIO()
    figure.savefig(empty)
    axes.plot([1, 3, 2] * 20)
    figure.savefig(drawn)
    assert is_empty(empty.getvalue())
    assert not is_empty(drawn.getvalue())


@pytest.mark.parametrize("name", IMAGES)
def test_an_image_is_that_of_its_notebook(name: str) -> None:
    notebook, cell_id = IMAGES[name]
    image = (FOLDER / "images" / name).read_bytes()
    assert [image] == pictures(read(FOLDER / f"{notebook}.ipynb"), cell_id)
    assert len(image) < 250_000


@pytest.mark.parametrize("name", IMAGES)
def test_an_image_has_a_dark_variant(name: str) -> None:
    """It is `python -m tests.world.browser.pictures` that draws it."""
    light, dark = (
        imread(FOLDER / "images" / each)[..., :3] @ (0.213, 0.715, 0.072)  # luminance
        for each in (name, name.replace(".png", "-dark.png"))
    )
    assert light.shape == dark.shape
    assert abs(light + dark - 1).mean() < 0.03
    assert light.mean() > 0.7 > 0.3 > dark.mean()


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
    for cell, title, fact in (
        (run, "Run", "1 item"),
        (state, "State", "1 item"),
        (difference, "Difference", "+1 items"),
        (cost, "ResumeCost", "re-reads 2 items of the sources"),
    ):
        (output,) = cell[1]
        assert f"<bdi>{title}</bdi>" in output["text/html"], output
        assert f"<bdi>{fact}</bdi>" in output["text/html"], output
        assert "shuffle" in output["text/html"], output
        assert "moves=(" not in output["text/plain"], output
        assert "stages=(" not in output["text/plain"], output
    ((_, said),) = notes[1]
    places = re.findall(r"built at (\S+),", said)
    assert places == ["In[1]:11"] * 2 + ["In[1]:8"] * 2 + ["In[6]:1"] * 2, said


def store(names: list[str]) -> None:
    for path in NOTEBOOKS:
        if path.stem in names or not names:
            nbformat.write(executed(read(path)), path)
    for name, (notebook, cell_id) in IMAGES.items():
        (picture,) = pictures(read(FOLDER / f"{notebook}.ipynb"), cell_id)
        (FOLDER / "images" / name).write_bytes(picture)


if __name__ == "__main__":
    store(sys.argv[1:])
