"""Whole files of a bucket."""

from __future__ import annotations

from typing import Any

import pytest

import lazyckpt as lz
from tests.io.cases import check_reader
from tests.world.io.buckets import BUCKET


@pytest.mark.filterwarnings("ignore")  # of others' packages
def test_files_of_a_bucket_are_read_whole(client: Any) -> None:
    contents = {"cats/1.jpg": b"\xff\xd8", "dogs/1.jpg": b"", "dogs/2.jpg": b"x" * (1 << 21)}
    for name, data in contents.items():
        client.put_object(Bucket=BUCKET, Key=f"whole/{name}", Body=data)
    rows = lz.io.read_files(f"s3://{BUCKET}/whole/**/*.jpg")
    check_reader(rows, [{"name": name, "data": data} for name, data in contents.items()])
    assert lz.trace(lz.source(rows), 0)[0].row[:2] == (f"s3://{BUCKET}/whole/cats/1.jpg", 0)
