"""Every reader, with every compression, of an S3 server; laws of formats that others write."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import pytest
from array_record.python.array_record_module import ArrayRecordWriter
from hypothesis import strategies as st

import lazyckpt as lz
from tests.io import laws
from tests.io.contents import Contents, all_of, in_files, named
from tests.io.table import FORMATS, Format, example
from tests.world.io.buckets import BUCKET

pytestmark = pytest.mark.filterwarnings("ignore")  # of others' packages
_numbers = count()
REMOTE = {
    name: form
    for name, form in FORMATS.items()
    if not form.is_local and (not form.compression or form.reader == "read_text")
}


@pytest.mark.parametrize("name", REMOTE)
def test_rows_of_a_bucket_are_those_of_a_disk(name: str, client: Any) -> None:
    def put(found: Contents) -> str:
        place = f"laws/{next(_numbers)}"
        for name, content in found.files.items():
            client.put_object(Bucket=BUCKET, Key=f"{place}/{name}", Body=content)
        return f"s3://{BUCKET}/{place}"

    laws.rows_are_the_same_elsewhere(REMOTE[name], put)


def array_record(rows: list[bytes], group: int = 1) -> bytes:
    with NamedTemporaryFile() as file:
        writer = ArrayRecordWriter(file.name, f"group_size:{group}")
        for row in rows:
            writer.write(row)
        writer.close()
        return Path(file.name).read_bytes()


@st.composite
def array_records(draw: st.DrawFn) -> Contents:
    files, group = draw(in_files(st.binary(max_size=9))), draw(st.integers(1, 4))
    return named([array_record(rows, group) for rows in files], ".array_record", all_of(files))


# Formats that are written by their owners.
OTHERS = {
    "array_record": Format(
        reader="read_array_record",
        pattern="*.array_record",
        random=array_records(),
        example=example(
            ".array_record",
            lambda half: array_record([b"%d" % n for n in half]),
            lambda n: b"%d" % n,
        ),
        none=[b"", b"no records at all" * 99],
        is_foreign=True,
        is_local=True,
    )
}


@pytest.mark.parametrize(("law", "form"), laws.cases(OTHERS))
def test_laws(law: laws.Law, form: Format) -> None:
    law(form)


@pytest.mark.parametrize("executor", [lz.threads(3), lz.processes(2)], ids=str)
def test_workers_give_the_rows(executor: lz.Executor) -> None:
    laws.workers_give_the_rows(OTHERS, executor)


def test_every_reader_is_held_to_them() -> None:
    known = {form.reader for form in (FORMATS | OTHERS).values()}
    readers = {name for name in lz.io.__all__ if name.startswith("read_")}
    assert readers - known == {"read_dataset"}  # of data sets, which are no files
