"""The package: its names, its modules, the imports that it causes."""

from __future__ import annotations

import ast
import gc
import inspect
import re
import sys
from functools import cache
from graphlib import TopologicalSorter
from importlib import import_module
from importlib.metadata import requires, version
from pathlib import Path
from types import FrameType

import pytest

import lazyckpt as lz
from lazyckpt import testing
from lazyckpt.integrations import trackers
from tests.docstrings import named, parsed
from tests.helpers import loaded, printed

ROOT = Path(lz.__file__).parent
TESTS = Path(__file__).parent
ROOMS = [
    ["core.secrets", "core.iterators", "core.cut", "core.lines"],
    ["errors"],
    ["core.sizes", "core.pictured"],
    ["core.checks"],
    ["core.values"],
    ["core.prng"],
    ["core.flow"],
    ["core.machine"],
    ["core.arrays", "core.stages", "core.user_state", "core.show"],
    ["core.frames"],
    ["core.content"],
    ["core.registry"],
    ["core.call"],
    ["core.define"],
    ["machines", "pictures", "failures.notes"],
    ["failures.marks"],
    ["failures.skip_log"],
    ["failures.guards"],
    ["failures.watching"],
    ["failures.skipping"],
    ["state.codec"],
    ["state.words"],
    ["state.mismatch"],
    ["state.state"],
    ["state.obstacles"],
    ["state.rebase"],
    ["state.walk"],
    ["state.algebra"],
    ["state.reshard", "state.resume_cost"],
    ["timers"],
    ["executors.plan"],
    ["executors.ipc"],
    ["executors.pools"],
    ["executors"],
    ["stats", "cursor", "epochs"],
    ["delivery"],
    ["run", "tickets"],
    ["tracking"],
    ["state.saving"],
    ["pipeline"],
    ["decorators", "preview"],
    ["combinators"],
    ["explanation"],
    ["monitoring"],
    ["io"],
    ["lineage"],
    ["types"],
    ["compat.samplers"],
    ["integrations"],
    ["__init__"],
    ["testing", "demo", "compat"],
    ["cli"],
    ["__main__"],
]
SPLIT = {"core", "state", "failures"}  # folders on several floors


def room(name: str) -> int:
    """The level of a module: `lazyckpt.combinators.map` is on the level of `combinators`."""
    _, *parts = [*name.split("."), "__init__"]
    keys = {parts[0], ".".join(parts[:2])}
    return next(floor for floor, rooms in enumerate(ROOMS) if keys & set(rooms))


@cache
def tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text("utf-8"))


def imported(file: Path) -> list[str]:
    names = []
    for node in ast.walk(tree(file)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: a relative import"
            module = node.module or ""
            submodules = [f"{module}.{alias.name}" for alias in node.names]
            names += [n if is_module(n) else module for n in submodules]
    return [name for name in names if name.partition(".")[0] == "lazyckpt"]


@cache
def is_module(name: str) -> bool:
    path = ROOT.parent.joinpath(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").exists()


def test_each_room_imports_from_the_rooms_before_it() -> None:
    for file in ROOT.rglob("*.py"):
        parts = file.relative_to(ROOT.parent).with_suffix("").parts
        if len(parts) > 2 and parts[1:] == (parts[1], "__init__") and parts[1] in SPLIT:
            continue  # it holds a docstring
        mine = ".".join(parts)
        for other in imported(file):
            inside = parts[1] not in SPLIT and other.split(".")[1:2] == [parts[1]]
            assert inside or room(other) < room(mine), f"{mine} imports {other}"


def test_no_folder_imports_from_one_that_imports_from_it() -> None:
    graph: dict[Path, set[Path]] = {}
    for file in ROOT.rglob("*.py"):
        found = {folder_of(name) for name in imported(file)} - {file.parent, ROOT}
        if file.parent != ROOT:  # ROOMS has the modules there
            graph.setdefault(file.parent, set()).update(found)
    TopologicalSorter(graph).prepare()  # raises an error if there is a cycle


def folder_of(name: str) -> Path:
    path = ROOT.parent.joinpath(*name.split("."))
    return path if path.is_dir() else path.parent


NAMELESS = [
    "core",
    "state",
    "failures",
    "executors",
    "cursor.py",
    "delivery.py",
    "run.py",
    "pipeline.py",
    "lineage",
]


def tables(code: str) -> list[str]:
    """Code that knows combinators by name: tables of two or more, and comparisons with one."""
    return [ast.unparse(node) for node in ast.walk(ast.parse(code)) if knows(node)]


def knows(node: ast.AST) -> bool:
    if isinstance(node, (ast.Set, ast.Tuple, ast.List)):
        return count_names(*node.elts) > 1
    if isinstance(node, ast.Dict):
        return count_names(*node.keys) > 1 or count_names(*node.values) > 1
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):  # "map filter".split()
        words = getattr(node.func.value, "value", None)
        return isinstance(words, str) and len({*words.split()} & {*lz.registry}) > 1
    if isinstance(node, (ast.Compare, ast.Match)):
        sides = [node.left, *node.comparators] if isinstance(node, ast.Compare) else [node.subject]
        inside = [part for side in sides for part in getattr(side, "elts", [side])]
        inside += [p.value for p in ast.walk(node) if isinstance(p, ast.MatchValue)]
        return any(map(is_name, sides)) and count_names(*inside) > 0
    return False


def count_names(*nodes: ast.AST | None) -> int:
    """How many of these are the name of a combinator."""
    return sum(isinstance(node, ast.Constant) and node.value in lz.registry for node in nodes)


def is_name(node: ast.AST) -> bool:
    """Whether it reads as the name of a stage: `name`, `call.name`, `build.__name__`."""
    found = getattr(node, "id", getattr(node, "attr", ""))
    return found.strip("_").endswith("name")


def test_nothing_knows_combinators_by_name() -> None:
    for name in NAMELESS:
        file = ROOT / name
        for each in [file] if file.suffix else file.rglob("*.py"):
            assert not tables(each.read_text("utf-8")), each


def test_the_docstring_lists_the_rooms_in_order() -> None:
    listed = []
    for folder, names in re.findall(r"^- (?:(\w+): )?(.*)$", lz.__doc__ or "", re.MULTILINE):
        listed += [f"{folder}.{name}".lstrip(".") for name in names.split(", ")]
    rooms = [each for floor in ROOMS for each in floor]
    assert listed == [each for each in rooms if each not in ("executors", "__init__", "__main__")]


def test_no_import_hides_in_a_function() -> None:
    for file in ROOT.rglob("*.py"):
        for node in ast.walk(tree(file)):
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                hidden = [n for n in ast.walk(node) if isinstance(n, (ast.Import, ast.ImportFrom))]
                assert not hidden, f"{file.name}: {node.name} imports"


def test_tests_mirror_the_package() -> None:
    for folder in {file.parent.relative_to(ROOT) for file in ROOT.rglob("*.py")}:
        rooms = (TESTS, TESTS / "world")
        files = [room / folder.parent / f"test_{folder.name}.py" for room in rooms]
        inside = [file for room in rooms for file in (room / folder).glob("**/test_*.py")]
        assert inside or any(file.exists() for file in files), f"{folder}: no tests"


def test_no_test_file_is_long_or_the_rest_of_another() -> None:
    for file in TESTS.rglob("*.py"):
        assert not file.stem.endswith("_more"), file
        assert len(file.read_text("utf-8").splitlines()) <= 500, file


def test_exports_are_sorted_and_hold_every_combinator() -> None:
    assert lz.__all__ == sorted(lz.__all__)
    assert all(hasattr(lz, name) for name in lz.__all__)
    assert set(lz.registry) <= set(lz.__all__)
    for name, combinator in lz.registry.items():
        assert getattr(lz, name) is combinator.public


@pytest.mark.parametrize("name", ["testing", "compat", "integrations", "io"])
def test_submodules_are_there_when_asked_for(name: str) -> None:
    assert f"'lazyckpt.{name}'" in printed(f"import lazyckpt as lz; print(lz.{name})")


@pytest.mark.parametrize(
    ("wrong", "right"),
    [("shufle", "shuffle"), ("Pipline", "Pipeline"), ("testin", "testing"), ("tourch", "torch")],
)
def test_a_misspelt_name_gets_a_suggestion(wrong: str, right: str) -> None:
    with pytest.raises(AttributeError, match=f"{wrong!r}; did you mean {right!r}"):
        getattr(lz, wrong)


def test_a_name_like_no_other_gets_none() -> None:
    with pytest.raises(AttributeError, match=r"no attribute 'quux'$"):
        lz.quux  # noqa: B018


def test_public_functions_say_what_their_arguments_are() -> None:
    public = {name: getattr(lz, name) for name in lz.__all__ if name not in {*lz.registry}}
    public |= {
        name: getattr(module, name) for module in (testing, trackers) for name in module.__all__
    }
    for name, function in public.items():
        if inspect.isfunction(function) and function.__module__.startswith("lazyckpt."):
            wanted = {*inspect.signature(function).parameters} - {"options"}
            told = {each.lstrip("*") for each in named(parsed(function).sections.get("Args", ""))}
            assert wanted <= told, f"{name}: {wanted - told}"


def test_the_wheel_needs_numpy_and_toolz_alone() -> None:
    needed = [line for line in requires("lazyckpt") or [] if "extra ==" not in line]
    assert sorted(line.partition(">")[0] for line in needed) == ["numpy", "toolz"]
    assert version("lazyckpt") == lz.__version__
    assert (ROOT / "py.typed").exists()


def test_importing_brings_no_optional_package() -> None:
    heavy = {"hypothesis", "torch", "datasets", "pandas", "multiprocessing", "asyncio", "argparse"}
    assert not heavy & loaded("import lazyckpt")


def test_importing_brings_no_stage_and_little_of_the_standard_library() -> None:
    found = loaded("import lazyckpt") - loaded("import numpy")
    assert not [name for name in found if name.startswith("lazyckpt.combinators")]
    assert not {"pathlib", "html", "fractions", "queue", "importlib.util", "threading"} & found


def test_a_pipeline_brings_what_it_uses_alone() -> None:
    code = "import lazyckpt as lz; list(lz.source([1, 2]) | lz.map(str) | lz.batch(2))"
    found = {name for name in loaded(code) if name.startswith("lazyckpt.")}
    others = ("concat", "filter", "machines.buffered_shuffle", "mix", "repeat", "shuffle", "zip")
    assert not found & {f"lazyckpt.combinators.{name}" for name in others}
    pools = ("lazyckpt.executors.pool", "lazyckpt.executors.ipc", "lazyckpt.lineage")
    assert not [name for name in found if name.startswith(pools)]


@pytest.mark.parametrize("shuffle", [lz.shuffle(seed=0), lz.shuffle(10, seed=0)])
def test_a_resumed_run_goes_through_few_modules(shuffle: lz.Stage[int, int]) -> None:
    state = lz.state_at(lz.source(range(100)) | shuffle | lz.batch(4), 3)
    pipeline = lz.source(range(100)) | shuffle | lz.batch(4)
    files = set()

    def note(frame: FrameType, event: str, value: object) -> None:
        files.add(frame.f_code.co_filename)

    before, is_collecting = sys.getprofile(), gc.isenabled()
    gc.disable()  # what it finalizes is not the run's
    sys.setprofile(note)
    try:
        next(lz.run(pipeline, state))
    finally:
        sys.setprofile(before)
        if is_collecting:
            gc.enable()
    ours = sorted(file for file in files if Path(file).is_relative_to(ROOT))
    assert len(ours) <= 20, ours


def test_names_come_from_where_type_checkers_see_them() -> None:
    seen = {
        alias.name: getattr(import_module(node.module), alias.name)
        for node in ast.walk(tree(ROOT / "__init__.py"))
        if isinstance(node, ast.ImportFrom)
        and node.module
        and node.module.startswith("lazyckpt.")
        and node.module != "lazyckpt.integrations"
        for alias in node.names
    }
    assert {name: getattr(lz, name) for name in lz.__all__} == seen


def test_dir_lists_the_public_names_alone() -> None:
    code = "import lazyckpt, lazyckpt.io, lazyckpt.testing; print(*dir(lazyckpt))"
    assert printed(code).split() == dir(lz) == lz.__all__
