"""MDS: values of every type, several folders, and listings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lazyckpt as lz
from lazyckpt.testing import equal
from tests.io import formats
from tests.io.cases import check_reader
from tests.io.contents import Contents
from tests.io.laws import put


def listed(files: Sequence[Sequence[dict[str, Any]]], **change: Any) -> Path:
    """The list of such shards."""
    return Path(put(Contents(formats.mds(files, **change), [])), "index.json")


ROWS = [{"text": str(n), "number": np.int32(n)} for n in range(5)]


NUMBERS = [f"{kind}{bits}" for kind in ("uint", "int") for bits in (8, 16, 32, 64)]


@pytest.mark.parametrize("kind", [*NUMBERS, "float16", "float32", "float64"])
def test_numbers_and_arrays_of_every_type_and_images(kind: str) -> None:
    value = np.arange(6).astype(kind).reshape(2, 3)
    head = bytes([8 * value.itemsize + "uif".index(value.dtype.kind)])
    shape, content = bytes([value.ndim << 2, *value.shape]), value.tobytes()
    several = np.array([2, 1, 3], "<u4").tobytes() + b"apng"
    row: dict[str, tuple[Any, bytes, bool]] = {  # by encoding: the value, its bytes, a fixed size
        kind: (value[1, 2], value[1, 2].tobytes(), True),
        "ndarray": (value, head + shape + content, False),
        f"ndarray:{kind}": (value, shape + content, False),
        f"ndarray:{kind}:2,3": (value, content, True),
        "jpeg_array": ([b"a", b"png"], several, False),
        "list[png]": ([b"a", b"png"], bytes(4) + several, False),
    }
    sizes = [len(made) for _, made, is_fixed in row.values() if not is_fixed]
    sample = np.array(sizes, "<u4").tobytes() + b"".join(made for _, made, _ in row.values())
    content = np.array([1, 12, 12 + len(sample)], "<u4").tobytes() + sample
    path = listed(
        [[]],
        column_names=[*row],
        column_encodings=[*row],
        column_sizes=[len(made) if is_fixed else None for _, made, is_fixed in row.values()],
        samples=1,
        raw_data={"basename": "shard.00000.mds", "bytes": len(content)},
    )
    (path.parent / "shard.00000.mds").write_bytes(content)
    check_reader(lz.io.read_mds(path), [{name: found for name, (found, _, _) in row.items()}])


def test_several_folders_are_one_sequence() -> None:
    paths = [listed([ROWS[:2]]), listed([ROWS[2:]])]
    assert equal(list(lz.io.read_mds(paths)), ROWS)


def test_shards_of_a_listing_are_not_looked_for() -> None:
    path = listed([ROWS])
    files = lz.io.files([path, path.parent / "*.mds"])
    saved = lz.io.Files.from_json(files.to_json())
    (path.parent / "shard.00000.mds").write_bytes(b"other")
    with pytest.raises(lz.SourceChanged, match=r"shard\.00000\.mds changed since it was listed"):
        list(lz.io.read_mds(saved))
