"""Files with any byte gone or changed, or of another format: rows as they were, or errors that
name the file, record and offset; whatever a damaged length says. Values that are none.
"""

from __future__ import annotations

import bz2
import json
import lzma
import tracemalloc
from collections.abc import Callable, Iterator
from copy import deepcopy
from gzip import compress as gzip
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import feather

import lazyckpt as lz
from tests.helpers import traced
from tests.io.cases import folder, written, zstd
from tests.io.formats import bgzf, mds, saved
from tests.io.laws import damage_is_named
from tests.io.table import FORMATS


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The positions of values in JSON."""
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
    ("mds", "shard.00001.mds", 36, FAR),  # the end of the last one
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
    damage_is_named(form, form.example.files)  # its imports are no part of this
    with traced():
        damage_is_named(form, {**form.example.files, file: content})
        _, peak = tracemalloc.get_traced_memory()
    assert peak < 8_000_000


LINES = b"".join(b'{"n": %d, "text": "%s"}\n' % (n, b"ab" * (n % 5)) for n in range(9))
STREAMS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip,
    ".bgz": bgzf,
    ".zst": zstd.compress,
    ".xz": lzma.compress,
    ".bz2": bz2.compress,
}


@pytest.mark.parametrize("packing", STREAMS)
def test_streams_of_damaged_files(packing: str) -> None:
    packed = STREAMS[packing](LINES)
    path = folder() / f"a.jsonl{packing}"
    expected = [json.loads(line) for line in LINES.splitlines()]

    @settings(max_examples=max(40, settings.default.max_examples))
    @given(st.integers(1, len(packed) - 1), st.integers(0, 255))
    def holds(at: int, flipped: int) -> None:
        end = len(packed) if flipped else at
        spoilt = bytearray(packed)
        spoilt[at] ^= flipped
        path.write_bytes(spoilt[:end])
        found, error = [], None
        try:
            for row in lz.io.iter_jsonl(path):
                found.append(row)
        except lz.PipelineError as raised:
            error = raised
        assert error is None or str(path) in str(error)
        if packing and error is None and packing not in (".bgz", ".zst"):
            assert found == expected

    holds()


def test_offsets_of_a_mapped_file_are_checked() -> None:
    content = saved(
        lambda out: feather.write_feather(pa.table({"t": ["a", "b", "c"]}), out, "uncompressed")
    )
    bounds = np.arange(4, dtype="i4").tobytes()
    assert content.count(bounds) == 1
    far = np.array([0, 1, 2, 1 << 30], "i4").tobytes()
    reader = lz.io.read_arrow(written([content.replace(bounds, far)], ".arrow"))
    with pytest.raises(lz.io.RecordError, match=r"record 0 at byte \d+ of .*000\.arrow: "):
        reader[2]
