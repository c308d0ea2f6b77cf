"""Modules and main scripts of programs, as workers know them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.executors.faults import script

RELOADS = """
import importlib, sys
from pathlib import Path
import lazyckpt as lz

sys.dont_write_bytecode = True
Path("numbers_of.py").write_text("SCALE = 1\\nclass Adding:\\n    def add(self, x): return x + 1")
Path("own.py").write_text("import numbers_of\\ndef fn(x): return x * numbers_of.SCALE")
sys.path.insert(0, ".")
import own, numbers_of

def items(fn):
    pipeline = lz.source(range(1, 4)) | lz.map(fn)
    return [*lz.run(pipeline, executor=lz.processes(2, start_method={method!r}))]

print(items(own.fn), items(numbers_of.Adding().add))
Path("numbers_of.py").write_text("SCALE = 10\\nclass Adding:\\n    def add(self, x): return x + 9")
importlib.reload(numbers_of)
print(items(own.fn), items(numbers_of.Adding().add))
Path("own.py").write_text("def fn(x): return -x")
own.fn.__code__ = (lambda x: -x).__code__  # as %autoreload of IPython does
with lz.run(lz.source(range(1, 4)) | lz.map(own.fn), executor=lz.processes(2)) as run:
    print(next(run))
    Path("own.py").write_text("def fn(x): return x * 100")
    importlib.reload(own)
    run.change(lz.source(range(1, 4)) | lz.map(own.fn))
    print(*run)
"""


@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_workers_have_the_new_code_of_a_module_that_was_reloaded(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    said = script(tmp_path, RELOADS.format(method=method))
    assert said == "[1, 2, 3] [2, 3, 4]\n[10, 20, 30] [10, 11, 12]\n-1\n200 300\n"


CHILD = """
import multiprocessing
import lazyckpt as lz

class Item:
    def __init__(self, x):
        self.x = x

def doubled(item):
    return Item(2 * item.x)

def work():
    pipeline = lz.source([Item(1), Item(2)]) | lz.map(doubled)
    with lz.run(pipeline, executor=lz.processes(2)) as run:
        print([item.x for item in run], flush=True)

if __name__ == "__main__":
    child = multiprocessing.get_context({method!r}).Process(target=work)
    child.start()
    child.join()
    assert child.exitcode == 0
"""


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_functions_of_the_script_in_a_child_of_multiprocessing(method: str, tmp_path: Path) -> None:
    assert script(tmp_path, CHILD.format(method=method)) == "[2, 4]\n"


UNKNOWN = """
import sys, types
import lazyckpt as lz

module = types.ModuleType("made_here")
exec("def fn(x): return x", module.__dict__)
sys.modules["made_here"] = module
try:
    print(*lz.run(lz.source([1]) | lz.map(module.fn), executor=lz.processes(2)))
except ModuleNotFoundError as error:
    print(error, *error.__notes__)
"""


def test_a_module_that_workers_can_not_import_is_told_with_the_remedy(tmp_path: Path) -> None:
    said = script(tmp_path, UNKNOWN)
    assert said.startswith("No module named 'made_here'")
    assert "cloudpickle.register_pickle_by_value" in said


CACHED = """
import functools, sqlite3
import lazyckpt as lz

@functools.cache
def connection():
    return sqlite3.connect(":memory:")

def read(i):
    return connection().execute("select ?", (i,)).fetchone()[0]

@functools.lru_cache(maxsize=None)
def fibonacci(n: int):
    "Calls itself."
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)

class Table:
    @functools.cached_property
    def sizes(self):
        return __class__, [10, 20, 30]

    @functools.lru_cache(4)
    def size(self, i):
        return self.sizes[1][i]

    def __call__(self, i):
        return self.size(i)

def told(i):
    return fibonacci.__name__, fibonacci.__doc__, fibonacci.cache_info().maxsize

functions = [read, functools.lru_cache(8)(read), fibonacci, Table().size, Table(), told]
for fn in [*functions, functools.lru_cache(Table())]:
    with lz.run(lz.source(range(3)) | lz.map(fn), executor=lz.processes(2)) as run:
        print(*run)
"""


def test_functions_with_a_cache_of_a_script(tmp_path: Path) -> None:
    said = script(tmp_path, CACHED).splitlines()
    numbers, sizes = "0 1 2", "10 20 30"
    name = "('fibonacci', 'Calls itself.', None)"
    assert said == [numbers, numbers, "0 1 1", sizes, sizes, " ".join([name] * 3), sizes]


CLASSES = """
import enum, functools
from collections import namedtuple
from dataclasses import dataclass
from typing import NamedTuple
import lazyckpt as lz

LIMIT = 5

class Kind(enum.Enum):
    A = 1

@dataclass(slots=True)
class Row:
    a: int
    kind: Kind

@dataclass(slots=True, frozen=True)
class Frozen:
    a: int

@dataclass(frozen=True, kw_only=True)
class Keyed:
    a: int

Point = namedtuple("P", "x y")  # by that name it is nowhere

class Pair(NamedTuple):
    x: int
    y: str

class Base:
    __slots__ = ("base",)

class Derived(Base):
    made = 0

    def __init__(self, a):
        self.a = self.base = a
        Derived.made += 1

    @functools.cached_property
    def twice(self):
        return 2 * self.a

    def limit(self):
        return LIMIT, __class__.made

    class Inner(dict):
        pass

class Packed:
    __slots__ = ("a",)

    def __init__(self, a):
        self.a = a

    def __getstate__(self):
        return self.a

    def __setstate__(self, state):
        self.a = state

class Private:
    __slots__ = ("__a",)

    def __init__(self, a):
        self.__a = a
        try:
            self.typo = a
        except AttributeError:
            self.__a = -a

    def get(self):
        return self.__a

def made(i):
    return (
        Row(i, Kind.A), Frozen(i), Keyed(a=i), Point(i, 2), Pair(i, "b"), Derived(i),
        Derived.Inner(a=i), Packed(i), Private(i), Kind.A, Row,
    )

kinds = Row, Frozen, Keyed, Point, Pair, Derived, Derived.Inner, Packed, Private, Kind, type
method = Derived.limit
with lz.run(lz.source(range(4)) | lz.map(made), executor=lz.processes(2, start_method={!r})) as run:
    items = [*run]
LIMIT = 7
print(*[kind for kind, *found in zip(kinds, *items) if {*map(type, found)} != {kind}])
for row, frozen, keyed, point, pair, derived, inner, packed, private, kind, cls in items[2:3]:
    print(row, frozen, keyed, point, pair, inner, packed.a, private.get(), derived.base)
    print(row.kind is kind is Kind.A, cls is Row, derived.limit(), Derived.limit is method)
"""


@pytest.mark.parametrize("method", ["forkserver", "fork"])
def test_items_are_of_the_classes_of_the_script_which_stay_as_they_are(
    method: str, tmp_path: Path
) -> None:
    said = script(tmp_path, CLASSES.replace("{!r}", repr(method))).splitlines()
    assert said.pop(0) == ("<class '__main__.P'>" if method == "fork" else "")  # new in each worker
    assert said == [
        "Row(a=2, kind=<Kind.A: 1>) Frozen(a=2) Keyed(a=2) P(x=2, y=2) Pair(x=2, y='b') "
        "{'a': 2} 2 -2 2",
        "True True (7, 0) True",
    ]


REDEFINED = """
import enum
import lazyckpt as lz

class Row:
    def __init__(self, a):
        self.a = a

class Kind(enum.Enum):
    A, B = 1, 2

class Odd(Exception):
    pass

def odd(item, error=Odd):
    raise error(item.a)

rows, kinds = lz.source(range(1, 3)) | lz.map(Row), lz.source([1, 2]) | lz.map(Kind)
pipelines, before = [rows, kinds, rows | lz.map(odd)], (Row, Kind, Odd)

class Row:
    def __init__(self, b):
        self.b = b

class Kind(enum.Enum):
    A = 1

class Odd(Exception):
    pass

for pipeline, kind in zip(pipelines, before):
    with lz.run(pipeline, executor=lz.processes(2)) as run:
        try:
            print([type(item) is kind for item in run])
        except Exception as error:
            print(type(error) is kind)
"""


def test_items_are_of_the_classes_that_a_pipeline_was_built_with(tmp_path: Path) -> None:
    """Though a cell of a notebook has defined them again."""
    assert script(tmp_path, REDEFINED) == "[True, True]\n[True, True]\nTrue\n"


ERRORS = """
import asyncio, enum, threading
import lazyckpt as lz

class Needs(Exception):
    def __init__(self, *, code):
        super().__init__(f"code {code}")
        self.code = code

class Kind(enum.Enum):
    A = 1

class Locked(Exception):
    def __init__(self, a, b):
        super().__init__(a)
        self.b, self.lock = b, threading.Lock()

class Missing(FileNotFoundError):
    def __init__(self, path):
        super().__init__(2, "no such record", path)

class Keyed(Exception):
    def __new__(cls, a, *, b):
        self = super().__new__(cls, a)
        self.b = b
        return self

    def __init__(self, a, *, b):
        pass

class Outer(Exception):
    def __init__(self, *inner):
        super().__init__("outer")
        self.code, self.b = inner[0], list(inner)

def fails(error, x):
    raise error()

for error in (
    lambda: Needs(code=4), lambda: Locked(1, Kind.A), lambda: Missing("a.txt"),
    lambda: Keyed(1, b=Kind.A), lambda: ExceptionGroup("several", [Locked(1, 2), Needs(code=1)]),
    lambda: Outer(Needs(code=5), Locked(1, 2)), asyncio.CancelledError, SystemExit,
):
    with lz.run(lz.source(range(3)) | lz.map(fails, error), executor=lz.processes(1)) as run:
        try:
            next(run)
        except (Needs, Locked, Keyed, Outer) as found:
            print(type(found).__name__, found, vars(found).get("code"), vars(found).get("b"))
        except Missing as found:
            print(found, found.filename)
        except ExceptionGroup as found:
            print(found, found.subgroup(Locked).exceptions[0].b)
        except BaseException as found:
            print(type(found).__name__, "in fails" in found.__notes__[-1])
"""


def test_errors_of_a_script_keep_their_type_and_traceback(tmp_path: Path) -> None:
    assert script(tmp_path, ERRORS).splitlines() == [
        "Needs code 4 4 None",
        "Locked 1 None Kind.A",
        "[Errno 2] no such record: 'a.txt' a.txt",
        "Keyed 1 None Kind.A",
        "several (2 sub-exceptions) 2",
        "Outer outer code 5 [Needs('code 5'), Locked(1)]",
        "CancelledError True",
        "SystemExit True",
    ]
