"""Every reader, with every compression, on every storage: all laws."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

import fsspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lazyckpt as lz
from tests.io.cases import check_reader, folder, written
from tests.io.formats import COMPRESSIONS, EXAMPLES, STREAMED, WHOLE, compressed

FEW = settings(max_examples=max(2, settings.default.max_examples // 30))
MORE = settings(max_examples=max(5, settings.default.max_examples // 15))  # of fewer cases

FORMATS = STREAMED | WHOLE
CASES = [(name, kind) for name in STREAMED for kind in COMPRESSIONS] + [(n, "none") for n in WHOLE]

pytestmark = pytest.mark.filterwarnings("ignore")  # of others' packages
_numbers = count()


def in_memory(contents: Sequence[bytes], suffix: str) -> lz.io.Files:
    place = f"/laws/{next(_numbers)}"
    system = fsspec.filesystem("memory")
    system.pipe({f"{place}/{n:03}{suffix}": content for n, content in enumerate(contents)})
    return lz.io.files(f"memory:/{place}/*{suffix}")


@pytest.mark.parametrize("storage", [written, in_memory])
@pytest.mark.parametrize(("name", "compression"), CASES)
def test_readers_keep_all_laws(name: str, compression: str, storage: Any) -> None:
    form, ending = FORMATS[name], COMPRESSIONS[compression][0]

    @(MORE if name in WHOLE else FEW)
    @given(drawn=form.contents, size=st.sampled_from([1 << 20, 700]), options=form.options)
    def holds(drawn: Any, size: int, options: dict[str, Any]) -> None:
        contents, rows = drawn
        found = [compressed(content, compression, size) for content in contents]
        files = storage(found, f"{form.suffix}{ending}")
        check_reader(form.read(files, index_dir=folder(), **options), rows)

    holds()


NAMES = "columns must be a list of names"
OTHERS = "columns must be a list of different names or None"
WRONG: list[tuple[str, dict[str, Any], str]] = [
    (".txt", {"encoding": "utf-16"}, "encoding must be an encoding in which a newline is one byte"),
    (".txt", {"encoding": "no-such"}, "encoding must be"),
    (".txt", {"errors": "loose"}, "errors must be one of Python's ways"),
    (".txt", {"compression": "xz"}, "compression must be 'infer', 'none', 'gzip' or 'zstd'"),
    (".txt", {"max_record_bytes": 0}, "max_record_bytes must be an int >= 1"),
    (".raw", {"max_record_bytes": 0}, "max_record_bytes must be an int >= 1"),
    (".txt", {"executor": 4}, "executor must be"),
    (".csv", {"columns": "ab"}, OTHERS),
    (".csv", {"columns": ["a", "a"]}, OTHERS),
    (".csv", {"delimiter": "||"}, "delimiter must be one ASCII character"),
    (".csv", {"quotechar": "\n"}, "quotechar must be one ASCII character or None"),
    (".tfrecord", {"check_crc": 1}, "check_crc must be True or False"),
    (".arrow", {"columns": "n"}, NAMES),
    (".parquet", {"columns": "n"}, NAMES),
    (".parquet", {"columns": []}, NAMES),
    (".parquet", {"columns": [1]}, NAMES),
    (".parquet", {"cache_bytes": -1}, "cache_bytes must be an int >= 0"),
    (
        ".parquet",
        {"filters": [("n", "~", 1)]},
        r"filters must be as .*\('n', '~', 1\)\]",
    ),
    (".parquet", {"filters": 3}, "filters must be as"),
]


@pytest.mark.parametrize(("suffix", "arguments", "message"), WRONG)
def test_wrong_arguments_are_named(suffix: str, arguments: dict[str, Any], message: str) -> None:
    content, read = EXAMPLES[suffix]
    with pytest.raises(lz.ArgumentError, match=message):
        read(written([content], suffix), **arguments)
