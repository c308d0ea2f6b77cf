"""The public names of `lazyckpt.io`: what their docstrings say, and that all are there."""

from __future__ import annotations

import inspect

import pytest

import lazyckpt as lz
from tests.docstrings import FACTS, named, parsed
from tests.helpers import loaded

FUNCTIONS = [name for name in lz.io.__all__ if inspect.isfunction(getattr(lz.io, name))]


def test_names_are_sorted_and_there() -> None:
    assert lz.io.__all__ == sorted(lz.io.__all__)
    assert all(getattr(lz.io, name).__name__ == name for name in lz.io.__all__)
    assert {*lz.io.__all__} <= {*dir(lz.io)}
    with pytest.raises(AttributeError, match="has no attribute 'read_txt'"):
        lz.io.read_txt  # noqa: B018


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_docstring_is_google_style(name: str) -> None:
    function = getattr(lz.io, name)
    docstring = parsed(function)
    assert docstring.summary.endswith(".")
    assert named(docstring.sections["Args"]) == [*inspect.signature(function).parameters]
    assert "Raises" in docstring.sections
    assert "\n>>> " in docstring.text
    if name.startswith("read_"):
        assert [*docstring.sections] == ["Args", "Returns", "Raises", *FACTS, "Memory"]


@pytest.mark.parametrize("name", lz.io.__all__)
def test_every_name_says_what_it_is(name: str) -> None:
    assert (getattr(lz.io, name).__doc__ or "").partition("\n")[0].endswith((".", ":"))


def test_importing_brings_no_optional_package() -> None:
    others = {"orjson", "obstore", "fsspec", "indexed_gzip", "backports.zstd", "tqdm", "argparse"}
    assert not others & loaded("import lazyckpt as lz; lz.io.read_csv, lz.io.iter_text")
    assert "lazyckpt.io" not in loaded("import lazyckpt as lz; lz.source([1])")
