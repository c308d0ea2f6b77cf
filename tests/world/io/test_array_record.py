"""ArrayRecord: records by their owner's reader."""

from __future__ import annotations

import random

import pytest

import lazyckpt as lz
from tests.io.contents import named
from tests.io.laws import put
from tests.world.io.test_formats import array_record


def written(files: list[list[bytes]]) -> lz.io.Files:
    place = put(named([*map(array_record, files)], ".array_record", []))
    return lz.io.files(f"{place}/*")


def test_many_files_are_open_in_turn() -> None:
    reader = lz.io.read_array_record(written([[b"%d" % n] for n in range(70)]))
    expected = [b"%d" % n for n in range(70)]
    assert [*reader] == expected
    assert reader.__getitems__(range(70)) == expected


def test_files_elsewhere_are_refused() -> None:
    files = lz.io.Files([lz.io.File("s3://bucket/a.array_record", 1, "1")])
    with pytest.raises(lz.ArgumentError, match="must be on this machine, got s3://bucket"):
        lz.io.read_array_record(files)


@pytest.mark.parametrize("group", [1, 2])
def test_damage_is_an_error_and_no_other_record(group: int) -> None:
    rows = [b"to" * 20, b"be", b"or not"]
    content = array_record(rows, group)
    places = [at for at, value in enumerate(content) if value]  # others are filled up with zeros
    for at in random.Random(group).sample(places, 60):
        bad = content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]
        try:
            reader = lz.io.read_array_record(f"{put(named([bad], '.array_record', []))}/*")
        except lz.io.RecordError:
            continue
        with lz.run(lz.source(reader), on_error="skip") as run:
            found = list(run)
        assert found == [row for row in rows if row in found]
