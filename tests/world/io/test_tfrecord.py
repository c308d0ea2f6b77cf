"""TFRecord: records as TensorBoard's own writer has them."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tensorboard.summary.writer.record_writer import RecordWriter

import lazyckpt as lz
from tests.io.cases import check_reader, folder

FEW = settings(max_examples=max(4, settings.default.max_examples // 15))


@FEW
@given(st.lists(st.lists(st.binary(max_size=600), max_size=6), min_size=1, max_size=3))
def test_records_are_what_the_owner_wrote(files: list[list[bytes]]) -> None:
    place = folder()
    for number, rows in enumerate(files):
        with open(f"{place}/{number:03}.tfrecord", "wb") as out:
            writer = RecordWriter(out)
            for row in rows:
                writer.write(row)
            writer.flush()
    reader = lz.io.read_tfrecord(f"{place}/*.tfrecord", index_dir=folder())
    check_reader(reader, [row for rows in files for row in rows])
