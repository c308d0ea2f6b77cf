"""Item types flow through `|`: what mypy sees of a pipe, and what it refuses."""

from __future__ import annotations

import re
from pathlib import Path

from mypy import api

GOOD = """
import numpy as np
import lazyckpt as lz

words = lz.source(["a b", "c"])
reveal_type(words)
reveal_type(words | lz.flat_map(str.split) | lz.map(len))
reveal_type(lz.map(str.upper) | lz.map(len))
reveal_type(lz.map(str.upper) | lz.take(2) | lz.repeat())
reveal_type(lz.take(2) | lz.repeat() | lz.map(str.upper) | lz.map(len))
reveal_type([2, 3] | lz.take(2))
reveal_type(words | lz.shuffle(seed=0) | lz.repeat(2) | lz.filter(bool) | lz.take(3))
reveal_type(words | lz.shuffle(8, seed=0) | lz.block_shuffle(8, seed=0))
reveal_type(words | lz.shard(num_shards=2, index=0) | lz.skip(1))
reveal_type(lz.concat(words, words))
reveal_type(words[0])
reveal_type(words[1:])
for word in lz.run(words):
    reveal_type(word)

def longest(best: int, word: str) -> tuple[int, int]:
    return max(best, len(word)), len(word)

reveal_type(words | lz.scan(longest, 0))
[1, 2] | lz.map(str)
np.arange(3) | lz.batch(2)
"""

REVEALED = [
    "Pipeline[str]",
    "Pipeline[int]",
    "Stage[str, int]",
    "Stage[str, str]",
    "Stage[str, int]",
    "Pipeline[int]",
    "Pipeline[str]",
    "Pipeline[str]",
    "Pipeline[str]",
    "Pipeline[str]",
    "str",
    "Pipeline[str]",
    "str",
    "Pipeline[int]",
]

BAD = """
import lazyckpt as lz

words = lz.source(["a", "b"])
words | lz.map(abs)
words | lz.map(str.upper) | lz.map(abs)
lz.map(str.upper) | lz.map(abs)
words | lz.batch("2")
words | lz.shuffle(8)
words | words
words | len
lz.shard(2, 0)
lz.zip([1], [2])
"""


def checked(code: str, folder: Path) -> list[str]:
    """mypy's lines about the code, without the file's name."""
    file = folder / "sample.py"
    file.write_text(code)
    cache = ["--cache-dir", str(folder / "cache")]
    out, err, _ = api.run(["--strict", "--config-file", "", *cache, str(file)])
    assert not err, err
    return [line.partition("sample.py:")[2] for line in out.splitlines() if "sample.py:" in line]


def test_types_flow_through_a_pipe(tmp_path: Path) -> None:
    lines = checked(GOOD, tmp_path)
    assert not [line for line in lines if "error" in line]
    found = [re.sub(r"\b[\w.]+\.(\w+)", r"\1", line) for line in lines if "Revealed type" in line]
    types = [re.search(r'"(.*)"', line).group(1) for line in found]  # type: ignore[union-attr]
    assert types == REVEALED


def test_an_ill_typed_pipe_is_a_type_error(tmp_path: Path) -> None:
    lines = checked(BAD, tmp_path)
    wrong = {int(line.partition(":")[0]) for line in lines if "error" in line}
    assert wrong == set(range(5, 14))
