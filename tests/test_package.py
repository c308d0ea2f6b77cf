"""The package: its names, its rooms, what importing it brings along."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib.metadata import requires, version
from pathlib import Path

import lazyckpt as lz

ROOT = Path(lz.__file__).parent
ROOMS = [
    ["errors"],
    ["core.checks"],
    ["core.prng"],
    ["core.machine"],
    ["core.user_state"],
    ["core.registry"],
    ["core.call"],
    ["failures.notes", "diagram"],
    ["failures.skip_log"],
    ["failures.skipping"],
    ["state.state"],
    ["state.positions", "state.windows"],
    ["state.mismatch"],
    ["state.rebase"],
    ["state.algebra"],
    ["state.reshard", "state.resume_cost"],
    ["executors.plan"],
    ["executors.ipc"],
    ["executors.pools"],
    ["executors"],
    ["cursor", "epochs"],
    ["run"],
    ["state.saving"],
    ["pipeline"],
    ["combinators"],
    ["provenance"],
    ["integrations"],
    ["__init__"],
    ["testing", "demo", "compat"],
    ["__main__"],
]
SPLIT = {"core", "state", "failures"}  # folders on several floors


def room(name: str) -> int:
    """The floor of a module: `lazyckpt.combinators.map` is on that of `combinators`."""
    _, *parts = [*name.split("."), "__init__"]
    keys = {parts[0], ".".join(parts[:2])}
    return next(floor for floor, rooms in enumerate(ROOMS) if keys & set(rooms))


def imported(file: Path) -> list[str]:
    names = []
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: a relative import"
            module = node.module or ""
            submodules = [f"{module}.{alias.name}" for alias in node.names]
            names += [n if is_module(n) else module for n in submodules]
    return [name for name in names if name.partition(".")[0] == "lazyckpt"]


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
            inside = room(other) == room(mine) and other.split(".")[1] == parts[1]
            assert inside or room(other) < room(mine), f"{mine} imports {other}"


def test_no_import_hides_in_a_function() -> None:
    for file in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                hidden = [n for n in ast.walk(node) if isinstance(n, (ast.Import, ast.ImportFrom))]
                assert not hidden, f"{file.name}: {node.name} imports"


def test_exports_are_sorted_and_hold_every_combinator() -> None:
    assert lz.__all__ == sorted(lz.__all__)
    assert all(hasattr(lz, name) for name in lz.__all__)
    assert set(lz.registry) <= set(lz.__all__)
    for name, combinator in lz.registry.items():
        assert getattr(lz, name) is combinator.public


def test_the_wheel_needs_numpy_and_toolz_alone() -> None:
    needed = [line for line in requires("lazyckpt") or [] if "extra ==" not in line]
    assert sorted(line.partition(">")[0] for line in needed) == ["numpy", "toolz"]
    assert version("lazyckpt") == lz.__version__
    assert (ROOT / "py.typed").exists()


def test_importing_brings_no_optional_package() -> None:
    code = "import sys, lazyckpt; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"hypothesis", "torch", "datasets", "pandas", "multiprocessing", "asyncio", "argparse"}
    assert not heavy & set(done.stdout.split())
