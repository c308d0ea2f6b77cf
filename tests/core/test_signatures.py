"""Users' functions whose annotations name things that exist only for type checkers."""

from __future__ import annotations

import sys
from typing import Any

import pytest

import lazyckpt as lz
from lazyckpt.core.stages import passing

CODE = """
@lz.combinator(registered=False)
def unchanged(upstream: Absent[int]) -> Absent[int]:
    return passing(upstream)

@lz.composite
def twice(times: Absent = 2) -> Absent:
    return lz.repeat(times)
"""


@pytest.mark.skipif(sys.version_info < (3, 14), reason="annotations are read at once")
def test_what_an_annotation_names_need_not_be_there() -> None:
    found: dict[str, Any] = {"lz": lz, "passing": passing}
    exec(compile(CODE, "users.py", "exec", dont_inherit=True), found)
    pipeline = lz.source([1, 2]) | found["unchanged"]() | found["twice"]()
    assert list(pipeline) == [1, 2, 1, 2]
    assert repr(pipeline).endswith("unchanged() | twice()")
