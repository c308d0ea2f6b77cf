"""The public names of `lazyckpt.io`: what their docstrings say, and that all are there."""

from __future__ import annotations

import inspect
import re

import pytest

import lazyckpt as lz
from tests.docstrings import FACTS, named, parsed
from tests.helpers import loaded

ROWS = parsed(lz.io.Rows)
SHARED = re.findall(r"^- `(\w+)`: ", ROWS.text, re.MULTILINE)  # arguments of readers
FUNCTIONS = [name for name in lz.io.__all__ if inspect.isfunction(getattr(lz.io, name))]


def test_names_are_sorted_and_there() -> None:
    assert lz.io.__all__ == sorted(lz.io.__all__)
    assert all(getattr(lz.io, name).__name__ == name for name in lz.io.__all__)
    assert {*lz.io.__all__} <= {*dir(lz.io)}
    with pytest.raises(AttributeError, match="no attribute 'read_txt'; did you mean 'read_text'"):
        lz.io.read_txt  # noqa: B018


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_docstring_is_google_style(name: str) -> None:
    function = getattr(lz.io, name)
    docstring, is_reader = parsed(function), name.startswith("read_")
    assert docstring.summary.endswith(".")
    told = named(docstring.sections.get("Args", ""))
    shared = {*SHARED} - {*told} if is_reader else {}
    assert [n for n in inspect.signature(function).parameters if n not in shared] == told
    assert "Raises" in docstring.sections
    assert "\n>>> " in docstring.text
    if is_reader:
        assert "\nSee `Rows` for what all readers share" in docstring.text
        known = ["Args", "Returns", "Raises", *FACTS, "Memory"]
        assert [*docstring.sections] == [each for each in known if each in docstring.sections]


def test_what_readers_share_is_said_once() -> None:
    assert {"files", "index_dir", "executor"} <= {*SHARED}
    assert [*ROWS.sections] == ["Raises", *FACTS, "Memory"]
    for name in FUNCTIONS:
        sections = parsed(getattr(lz.io, name)).sections
        for fact in (*FACTS, "Memory") if name.startswith("read_") else ():
            assert sections.get(fact) != ROWS.sections[fact], f"{name}: {fact}"


@pytest.mark.parametrize("name", lz.io.__all__)
def test_every_name_says_what_it_is(name: str) -> None:
    assert (getattr(lz.io, name).__doc__ or "").partition("\n")[0].endswith((".", ":"))


def test_importing_brings_no_optional_package() -> None:
    others = {"msgspec", "obstore", "fsspec", "indexed_gzip", "backports.zstd", "tqdm", "argparse"}
    assert not others & loaded("import lazyckpt as lz; lz.io.read_csv, lz.io.iter_text")
    assert "lazyckpt.io" not in loaded("import lazyckpt as lz; lz.source([1])")
