"""MDS: shards as mosaicml-streaming wrote them, and random ones."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lazyckpt as lz
from lazyckpt.testing import equal
from tests.io.cases import check_reader, folder
from tests.io.shard_rows import DATA, MDS, mds

FEW = settings(max_examples=max(4, settings.default.max_examples // 15))
PLAIN = sorted(MDS)


def shard(rows: Sequence[dict[str, Any]], number: int, place: Path) -> dict[str, Any]:
    """Write a shard of texts and numbers; what the list says of it."""
    found = []
    for row in rows:
        text = row["text"].encode()
        size = np.array([len(text)], "<u4").tobytes()
        found.append(size + text + np.int32(row["number"]).tobytes())
    bounds = np.cumsum([4 * (len(found) + 2) + 2, *map(len, found)]).astype("<u4")
    content = np.uint32(len(found)).tobytes() + bounds.tobytes() + b"{}" + b"".join(found)
    name = f"shard.{number:05}.mds"
    (place / name).write_bytes(content)
    return {
        "format": "mds",
        "version": 2,
        "samples": len(rows),
        "column_names": ["text", "number"],
        "column_encodings": ["str", "int32"],
        "column_sizes": [None, 4],
        "raw_data": {"basename": name, "bytes": len(content), "hashes": {}},
        "zip_data": None,
    }


def listed(shards: Sequence[Sequence[dict[str, Any]]], **change: Any) -> Path:
    """The list of such shards."""
    place = folder()
    found = [shard(rows, number, place) for number, rows in enumerate(shards)]
    found[-1] |= change
    (place / "index.json").write_text(json.dumps({"version": 2, "shards": found}))
    return place / "index.json"


NUMBERS = st.integers(-(2**31), 2**31 - 1).map(np.int32)
ROW = st.builds(lambda text, number: {"text": text, "number": number}, st.text(max_size=4), NUMBERS)
ROWS = [{"text": str(n), "number": np.int32(n)} for n in range(5)]


@FEW
@given(st.lists(st.lists(ROW, max_size=5), min_size=1, max_size=3))
def test_samples_keep_all_laws(shards: list[list[dict[str, Any]]]) -> None:
    check_reader(lz.io.read_mds(listed(shards)), [row for rows in shards for row in rows])


@pytest.mark.parametrize("compression", ["none", "gz", "zstd"])
def test_samples_are_what_the_owner_wrote(compression: str) -> None:
    place = DATA / "mds" / compression / "index.json"
    rows = [{name: mds(n)[name] for name in PLAIN} for n in range(7)]
    check_reader(lz.io.read_mds(place, columns=PLAIN), rows)


def test_a_row_says_where_it_is() -> None:
    path = listed([ROWS[:3], ROWS[3:]])
    (found,) = lz.trace(lz.source(lz.io.read_mds(path)), 4)
    assert found.row == (str(path.parent / "shard.00001.mds"), 1, 27, 36)


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


def test_what_is_pickled_is_refused() -> None:
    place = DATA / "mds" / "none" / "index.json"
    with pytest.raises(lz.ArgumentError, match="'pkl', which is not read here: it may execute"):
        lz.io.read_mds(place)
    with pytest.raises(lz.ArgumentError, match="no column 'other' in "):
        lz.io.read_mds(place, columns=["other"])


def test_what_has_no_random_access_is_refused() -> None:
    with pytest.raises(lz.ArgumentError, match=r"shard\.00000\.mds\.bz2: \.bz2 has no random acc"):
        lz.io.read_mds(DATA / "mds" / "bz2" / "index.json", columns=PLAIN)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"samples": 4}, r"shard\.00001\.mds: index\.json says 4 records, and it has 3"),
        ({"column_sizes": [None, 8]}, r"all shards must have one layout, got .* of .*00001\.mds"),
        ({"format": "json"}, r"shards must be of MDS's version 2, got \('json', 2\), in .*index"),
        ({"raw_data": {}}, r"index\.json: no list of shards: "),
        ({"raw_data": {"basename": "no.mds"}}, r"no\.mds"),
    ],
)
def test_a_list_that_is_wrong_is_named(change: Any, message: str) -> None:
    path = listed([ROWS[:2], ROWS[2:]], **change)
    with pytest.raises((lz.ArgumentError, lz.io.RecordError, FileNotFoundError), match=message):
        lz.io.read_mds(path)


@pytest.mark.parametrize("content", ["[", "[]", '{"shards": 1}', '{"shards": [{}]}'])
def test_what_is_no_list_is_named(content: str) -> None:
    path = folder() / "index.json"
    path.write_text(content)
    with pytest.raises(lz.io.RecordError, match=r"index\.json: no list of shards: "):
        lz.io.read_mds(path)
    path.write_text('{"shards": []}')
    with pytest.raises(lz.ArgumentError, match=r"files must be the index\.json of folders"):
        lz.io.read_mds(path)


@pytest.mark.parametrize("size", [0, 3, 4, 20, 40])
def test_a_shard_that_is_cut_is_named(size: int) -> None:
    path = listed([ROWS])
    file = path.parent / "shard.00000.mds"
    file.write_bytes(file.read_bytes()[:size])
    with pytest.raises(lz.io.RecordError, match=r"shard\.00000\.mds: no shard, or it is cut: "):
        lz.io.read_mds(path)


def test_a_sample_that_is_damaged_is_left_out_where_asked() -> None:
    path = listed([ROWS])
    file = path.parent / "shard.00000.mds"
    damaged = bytearray(file.read_bytes())
    damaged[30] = 200  # the size of the first text
    file.write_bytes(bytes(damaged))
    rows = lz.io.read_mds(path)
    with pytest.raises(lz.io.RecordError, match=r"record 0 at byte 30 of .*00000\.mds: "):
        rows[0]
    with lz.run(lz.source(rows), on_error="skip") as run:
        assert equal(list(run), ROWS[1:])


def test_a_folder_that_moved_has_the_same_state() -> None:
    path = listed([ROWS])
    moved = folder() / "moved"
    shutil.copytree(path.parent, moved)
    one, other = (lz.io.read_mds(each) for each in (path, moved / "index.json"))
    lz.run(lz.source(other), lz.init(lz.source(one)))
