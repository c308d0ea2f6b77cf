"""Of every combinator, the types of its pipelines are told, for mypy and pyright to check."""

from __future__ import annotations

import re
from pathlib import Path

import lazyckpt as lz
from tests.types import pipelines


def test_every_combinator_has_its_types_told() -> None:
    told = set(re.findall(r"\blz\.(\w+)\(", Path(pipelines.__file__).read_text("utf-8")))
    known = {name for name, each in lz.registry.items() if each.public is getattr(lz, name, None)}
    assert known - told == set()
    assert {"batch", "map", "source", "zip"} <= known
