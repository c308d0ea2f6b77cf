"""Files of binary formats with any byte gone or changed: rows as they were, or errors that name
the file, record and offset; whatever a damaged length says.
"""

from __future__ import annotations

import json
import random
import tracemalloc
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest

from tests.io.formats import mds
from tests.io.laws import damage_is_named
from tests.io.table import FORMATS

CASES = ["mds", "mds, gzip", "mds, zstd", "tfrecord", "documents", "npy", "npz", "sqlite"]
MOST = 100  # contents of one format


def by_the_byte(content: bytes, chance: random.Random) -> Iterator[bytes]:
    """Content cut at each byte, and with each byte as another one."""
    for at in range(len(content)):
        yield content[:at]
        yield content[:at] + bytes([content[at] ^ 1 << chance.randrange(8)]) + content[at + 1 :]
        yield content[:at] + b"\xff" + content[at + 1 :]


@pytest.mark.parametrize("name", CASES)
def test_damage_is_an_error_that_names_record_and_file(name: str) -> None:
    form, chance = FORMATS[name], random.Random(name)
    damage_is_named(form, form.example.files)
    bad = [
        {**form.example.files, each: found}
        for each, content in form.example.files.items()
        for found in by_the_byte(content, chance)
    ]
    for files in chance.sample(bad, min(len(bad), MOST)):
        damage_is_named(form, files)


@pytest.mark.parametrize("name", [name for name in CASES if "*" not in FORMATS[name].pattern])
def test_what_is_not_there_is_named(name: str) -> None:
    form = FORMATS[name]
    files = form.example.files
    for each in files:
        damage_is_named(form, {**files, each: None})
        damage_is_named(form, {other: files[other] for other in files if other != each})


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where in JSON there is a value."""
    yield at
    keys = [*value] if isinstance(value, dict) else range(len(value) if type(value) is list else 0)
    for key in keys:
        yield from places(value[key], (*at, key))


ODD = [
    None, True, 0, 5, -4, 0.5, 1e9, 2**70, "", "x", "int", "pil", "../x", "a\0b", [], [None], ["a"],
    {}, {"a": 1}, "ndarray:object", "ndarray:int8:x", "ndarray:int8:-1", "jpegarray", "pkl",
]  # fmt: skip


@pytest.mark.parametrize("compression", ["", "gzip"])
def test_whatever_a_list_of_shards_says_is_an_error_that_names_a_file(compression: str) -> None:
    files = mds([[{"text": "ab" * n, "number": n} for n in range(3)]], compression)
    said = json.loads(files["index.json"])
    for *before, last in [at for at in places(said) if at]:
        for value in [*ODD, ...]:
            other = deepcopy(said)
            inner = other
            for key in before:
                inner = inner[key]
            if value is ...:
                del inner[last]
            else:
                inner[last] = value
            damage_is_named(FORMATS["mds"], {**files, "index.json": json.dumps(other).encode()})


FAR = b"\xff\xff\xff\x7f"
LENGTHS = [
    ("mds", "shard.00000.mds", 0, FAR),  # how many samples
    ("mds", "shard.00001.mds", 36, FAR),  # where the last one ends
    ("tfrecord", "000.tfrecord", 0, FAR * 2),
    ("documents", "000.idx", 18, FAR * 2),  # how many sequences
    ("documents", "000.idx", 34, FAR),  # tokens of the first one
    ("npy", "000.npy", 6, b"\2\0" + FAR),  # bytes of a header
]


@pytest.mark.parametrize(("name", "file", "at", "length"), LENGTHS)
def test_a_length_that_is_damaged_takes_no_memory(
    name: str, file: str, at: int, length: bytes
) -> None:
    form = FORMATS[name]
    content = form.example.files[file]
    content = content[:at] + length + content[at + len(length) :]
    damage_is_named(form, form.example.files)  # what is imported for it is no part of this
    tracemalloc.start()
    try:
        damage_is_named(form, {**form.example.files, file: content})
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8_000_000
