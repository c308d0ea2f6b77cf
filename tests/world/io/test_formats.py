"""Every reader, with every compression, of an S3 server."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings

import lazyckpt as lz
from lazyckpt.testing import equal
from tests.io.cases import folder
from tests.io.formats import COMPRESSIONS, compressed
from tests.io.test_formats import CASES, FEW, FORMATS
from tests.world.io.buckets import BUCKET

pytestmark = pytest.mark.filterwarnings("ignore")  # of others' packages
_numbers = count()


@pytest.mark.parametrize(("name", "compression"), CASES)
def test_rows_of_a_bucket_are_those_of_a_disk(
    name: str,
    compression: str,
    client: Any,
) -> None:
    form, ending = FORMATS[name], COMPRESSIONS[compression][0]

    @settings(FEW, max_examples=2)
    @given(drawn=form.contents.filter(lambda drawn: drawn[1]))
    def holds(drawn: Any) -> None:
        contents, rows = drawn
        place = f"laws/{next(_numbers)}"
        for number, content in enumerate(contents):
            key = f"{place}/{number:03}{form.suffix}{ending}"
            body = compressed(content, compression, 700)
            client.put_object(Bucket=BUCKET, Key=key, Body=body)
        found = form.read(lz.io.files(f"s3://{BUCKET}/{place}/*"), index_dir=folder())
        assert equal(found[::-1], rows[::-1])
        assert equal(found[len(rows) // 2], rows[len(rows) // 2])
        state = lz.state_at(lz.source(found), len(rows) // 2)
        assert equal(list(lz.run(lz.source(found), state)), rows[len(rows) // 2 :])

    holds()
