"""Which items of another library's behaviour have a test."""

from __future__ import annotations

import re
from pathlib import Path


def covered(file: str, kind: str) -> set[int]:
    """The numbers n of the tests `test_{kind}{n}_...` in all files beside one."""
    texts = (path.read_text("utf-8") for path in Path(file).parent.glob("test_*.py"))
    return {int(n) for text in texts for n in re.findall(rf"^def test_{kind}(\d+)_", text, re.M)}
