"""Unusual files, their rows, and the reader's arguments, by format."""

from __future__ import annotations

import json
import tarfile
from gzip import compress as gzip
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import feather, parquet

from tests.io.cases import zstd
from tests.io.formats import (
    archive,
    database,
    in_batches,
    ipc,
    mds,
    megatron_index,
    members_of,
    record,
    saved,
    sparse,
    statements,
)  # fmt: skip
from tests.io.shard_rows import DATA, MDS, mds_sample

_BLANKS = [b"\n\r\n1\n\r\n\n\n22\r\n\n3\r\n\r\n\r", b"", b"\n", b"\r"]
_LINES = ["", "", "1", "", "", "", "22", "", "3", "", "\r", "", "\r"]
_LOADED = [b"1", b"22", b"[3]", b"4"]
_SPACED = [b"\xef\xbb\xbf1", b"", b" \t", b" 22 ", b"\xef\xbb\xbf[3]", b"  ", b"4", b"  "]
_LATIN = '"é"\n\n"ß"\n'.encode("latin-1")
_COMMENTED = [b'\xef\xbb\xbf# a comment, with a " in it', b"", b'"x",y,', b"", b"1,2,3"]
_ENDS = [end.join(_COMMENTED) for end in (b"\n", b"\r\n", b"\r")]
_TABS = {"columns": ["a", "b"], "delimiter": "\t", "quotechar": None, "encoding": "latin-1"}
_RECORDS = [b"", b"a", b"b" * 50, b"", b"c" * 13]
_ARCHIVE = archive(members_of([{"a": b"1", "b": b"2"}]))  # 2,048 bytes, and its end
_SAMPLE = {"__key__": "d/0", "a": b"1", "b": b"2"}
_MATRIX = np.arange(12, dtype="i2").reshape(4, 3)
_TOKENS = [1, 2, 3, 4, 5, 6]
_TYPES = ["u1", "i1", "<i2", "<i4", "<i8", "<f8", "<f4", "<u2"]
_SAMPLES = [{"text": f"{n}", "number": np.int32(n)} for n in range(5)]
_COLUMNS = sorted(MDS)
_KEYS: list[Any] = [-(2**63), 1, 1.5, 2.0**53, 2**53 + 1, 2**63 - 1, "1", "A", "a", b"1"]
_PAIRS = [{"k": 9, "v": 1}, {"k": 8, "v": 2}]
_WHOLE = {"a.jpg": b"\xff\xd8", "b/c.jpg": b"", "b/d.txt.gz": gzip(b"as it is")}
_NAMES = ["", "a b", "'\"\\", "\n", "v0", "é", "class"]
NESTED = pa.table({"a": [1], "b": [{"c": 2, "d": 3}], "e": [4]})
VIEW = statements(
    "CREATE TABLE t (k TEXT PRIMARY KEY, v) WITHOUT ROWID",
    "INSERT INTO t VALUES ('a', 1)",
    "CREATE VIEW seen AS SELECT v, k FROM t",
)


def in_parquet(table: Any) -> bytes:
    return saved(lambda out: parquet.write_table(table, out, 2))


def documents(rows: list[list[int]], index: bytes, kind: str = "<u2") -> tuple[Any, ...]:
    """Tokens with such an index, and rows of them."""
    content = np.array(_TOKENS, kind).tobytes()
    return {"000.bin": content, "000.idx": index}, [np.array(row, kind) for row in rows]


def llm_c(count: int = 50) -> bytes:
    """A file of plain numbers after a header that says 50 of them, as llm.c writes it."""
    header = np.zeros(256, "<i4")
    header[:3] = 20240520, 1, 50
    return header.tobytes() + np.arange(count, dtype="<u2").tobytes()


def of_mosaic(compression: str) -> dict[str, bytes]:
    """Shards as mosaicml-streaming wrote them."""
    return {path.name: path.read_bytes() for path in (DATA / "mds" / compression).iterdir()}


def _merged() -> dict[str, bytes]:
    """Shards in a folder below, as `merge_index` of mosaicml-streaming writes them."""
    found = mds([_SAMPLES])
    content = found.pop("shard.00000.mds")
    said = found["index.json"].replace(b"shard.00000", b"below/shard.00000")
    return {"below/shard.00000.mds": content, "index.json": said}


def _empty_batches(made: Any) -> list[bytes]:
    """Some of them at the front, in the midst and at the end; of a dictionary, too."""
    files = []
    for words in (pa.array(["a", "b", "c"]), pa.array(["a", "b", "c"]).dictionary_encode()):
        (whole,) = pa.table({"x": words}).to_batches()
        for bounds in ([0, 0, 3], [0, 0, 0], [0, 2, 2, 3], [0, 0, 1, 1, 3, 3]):
            parts = pairwise(bounds)
            files.append(in_batches([whole.slice(a, b - a) for a, b in parts], made))
    return files


def _number(content: bytes, at: int, size: int = 4) -> int:
    return int.from_bytes(content[at : at + size], "little")


def _big_endian(made: Any) -> tuple[Any, ...]:
    """A file whose schema, a table of flatbuffers, says that numbers are big endian."""
    values = [1, 2, 70_000]
    whole = saved(lambda out: ipc(pa.table({"x": pa.array(values * 2, pa.int32())}), out, 3, made))
    little, big = (np.array(values, f"{order}i4").tobytes() for order in "<>")
    content = bytearray(whole.replace(little, big))
    is_stream, end = made is pa.ipc.new_stream, len(content) - 10
    root, slot = (8, 2) if is_stream else (end - _number(content, end), 1)
    table = root + _number(content, root)
    field = table + _number(content, table - _number(content, table) + 4 + 2 * slot, 2)
    schema = field + _number(content, field)
    one = next(at for at in range(schema, len(content), 2) if _number(content, at, 2) == 1)
    where = schema - _number(content, schema) + 4  # of the count that its header says
    content[where : where + 2] = (one - schema).to_bytes(2, "little")
    opened = pa.ipc.open_stream if is_stream else pa.ipc.open_file
    assert opened(bytes(content)).read_all()["x"].to_pylist() == values * 2
    return bytes(content), [{"x": np.int32(value)} for value in values * 2]


def _without_a_schema_before_it() -> bytes:
    """A file of which only the footer says what there is, as of polars 2.1."""
    content = bytearray(saved(lambda out: ipc(pa.table({"x": range(9)}), out, 4)))
    first = _number(content, 12) + 16
    content[8:first] = bytes(first - 8)
    return bytes(content)


_WORDS = pa.table({"n": range(40), "word": pa.array(["even", "odd"] * 20).dictionary_encode()})
_WORD_ROWS = [{"n": np.int64(n), "word": "odd" if n % 2 else "even"} for n in range(40)]


def _arrow(made: Any) -> list[tuple[Any, ...]]:
    content = saved(lambda out: ipc(_WORDS, out, 10, made))
    return [
        (_empty_batches(made), [{"x": word} for word in "abc" * 6]),
        _big_endian(made),
        (content, _WORD_ROWS),
        (content, [{"word": row["word"]} for row in _WORD_ROWS], {"columns": ["word"]}),
    ]


ODD: dict[str, list[tuple[Any, ...]]] = {
    "text": [
        (_BLANKS, _LINES),
        (b"b\xffd\n", ["b\xffd"], {"encoding": "latin-1"}),
        (b"b\xffd\n", ["b\ufffdd"], {"errors": "replace"}),
        ({"0.GZ": gzip(b"1\n"), "1.Zst": zstd.compress(b"2\n")}, ["1", "2"]),
        (gzip(b"1\n"), ["1"], {"compression": "gzip"}),
        (zstd.compress(b"1\n"), ["1"], {"compression": "zstd"}),
        ({"0.gz": b"1\n", "1.zst": b"2\n"}, ["1", "2"], {"compression": "none"}),
    ],
    "jsonl": [
        (_BLANKS, [1, 22, 3]),
        (b"\xef\xbb\xbf1\n \t\n 2 \n\xef\xbb\xbf[3]", [1, 2, [3]]),
        (_LATIN, [*"éß"], {"encoding": "latin-1"}),
        (_LATIN, [*"éß"], {"encoding": "latin-1", "loads": json.loads}),
        (
            [end.join(_SPACED) + end * n for end in (b"\n", b"\r\n") for n in range(2)],
            _LOADED * 4,
            {"loads": bytes},
        ),
        (b"\n".join(_LOADED), _LOADED, {"loads": bytes}),
        ({"0.json": b"[1, 2]\n[3]\n", "1.json": b'{"a": [1]}'}, [[1, 2], [3], {"a": [1]}]),
    ],
    "csv": [
        (
            [b'\r\nx,y\n\n1,"a\n""b""\r\n"\r\n\n"",2', b"", b"x,y\n", b"x,y", b"x,y\n1,2"],
            [{"x": "1", "y": 'a\n"b"\r\n'}, {"x": "", "y": "2"}, {"x": "1", "y": "2"}],
        ),
        (
            '\ufeffx,"y"\r5" tall,é\r"a",b" c\r'.encode(),
            [{"x": '5" tall', "y": "é"}, {"x": "a", "y": 'b" c'}],
        ),
        (_ENDS, [{"x": "1", "y": "2", "": "3"}] * 3, {"skip_lines": 1}),
        (_ENDS, [{"a": "1", "b": "2", "c": "3"}] * 3, {"skip_lines": 3, "columns": [*"abc"]}),
        (_ENDS, [], {"skip_lines": 9}),
        (b'1\t2"\n\n\xe9\t"4\n', [{"a": "1", "b": '2"'}, {"a": "é", "b": '"4'}], _TABS),
    ],
    "tar": [
        (
            [archive([]), archive([("README", b"")]), archive(members_of([{"a": b""}]))],
            [{"__key__": "d/0", "a": b""}],
        ),
        ([_ARCHIVE[: 2048 + more] for more in (0, 100, 512)], [_SAMPLE] * 3),
        ({"0.tgz": gzip(_ARCHIVE)}, [_SAMPLE]),
        (
            [sparse(form) for form in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)],
            [{"__key__": "d/1", "txt": bytes(5) + b"abc", "cls": b"7"}] * 2,
        ),
        (
            {
                "0.tar": archive(members_of([{"txt": b"a"}, {"txt": b"b", "cls": b"1"}])),
                "0.tar.idx": np.array([0, 1024, 3072], "<u8").tobytes(),  # of energon
            },
            [{"__key__": "d/0", "txt": b"a"}, {"__key__": "d/1", "txt": b"b", "cls": b"1"}],
        ),
    ],
    "tfrecord": [
        ([b"".join(map(record, _RECORDS)), b""], _RECORDS),
        (gzip(record(b"a") + record(b"b")), [b"a", b"b"], {"compression": "gzip"}),
        (record(b"sed").replace(b"sed", b"sad"), [b"sad"], {"check_crc": False}),
    ],
    "parquet": [
        (
            in_parquet(pa.table({name: [n] for n, name in enumerate(_NAMES)})),
            [{name: np.int64(n) for n, name in enumerate(_NAMES)}],
        ),
        (in_parquet(NESTED), [{"a": np.int64(1), "e": np.int64(4)}], {"columns": ["e", "a"]}),
        (in_parquet(NESTED), [{"b": {"d": 3}}], {"columns": ["b.d"]}),
        (
            [in_parquet(NESTED.slice(1)), in_parquet(NESTED)],
            [{"b": {"d": 3}, "a": np.int64(1)}],
            {"columns": ["b.d", "a"]},
        ),
    ],
    "arrow": [
        *_arrow(pa.ipc.new_file),
        ({"0.feather": saved(lambda out: feather.write_feather(_WORDS, out))}, _WORD_ROWS),
        (_without_a_schema_before_it(), [{"x": np.int64(n)} for n in range(9)]),
    ],
    "arrow stream": _arrow(pa.ipc.new_stream),
    "npy": [
        (saved(lambda out: np.save(out, _MATRIX)), [*_MATRIX], {"length": None}),
        (
            saved(lambda out: np.save(out, _MATRIX)),
            [*np.arange(10, dtype="i2").reshape(2, 5)],
            {"length": 5},
        ),
    ],
    "npz": [
        (
            saved(lambda out: np.savez(out, x=np.arange(4), y=np.arange(5, 9))),
            [np.array([5, 6]), np.array([7, 8])],
            {"length": 2, "name": "y"},
        ),
    ],
    "bin": [
        (
            [llm_c()] * 2,
            [*np.arange(40, dtype="<u2").reshape(2, 20)] * 2,
            {"length": 20, "offset": 1024},
        ),
    ],
    "documents": [
        (*documents([[1, 2], [3, 4], [5, 6]], megatron_index([3, 3])), {"length": 2}),
        documents([[1, 2, 3], [4, 5, 6]], megatron_index([2, 1, 3], [0, 2, 3])),
        documents([[1, 2], [3, 4, 5, 6]], megatron_index([2, 4]) + bytes(2)),  # of their modes
        *(
            documents([[1, 2, 3], [4], [5, 6]], megatron_index([3, 1, 2], kind=kind), kind)
            for kind in _TYPES
        ),
    ],
    "mds": [
        *(
            (
                of_mosaic(compression),
                [{name: mds_sample(n)[name] for name in _COLUMNS} for n in range(7)],
                {"columns": _COLUMNS},
            )
            for compression in ("none", "gz", "zstd")
        ),
        (_merged(), _SAMPLES),
        (
            mds([_SAMPLES], column_encodings=["str", "int32x"]),
            [{"text": row["text"]} for row in _SAMPLES],
            {"columns": ["text"]},
        ),
    ],
    "sqlite": [
        (
            {"a.db": database([(key, n) for n, key in enumerate(_KEYS)][::-1])},
            [{"k": key, "v": n} for n, key in enumerate(_KEYS)],
        ),
        (
            {"a.db": statements("CREATE TABLE t (k, v)", "INSERT INTO t VALUES (9, 1), (8, 2)")},
            _PAIRS,
            {"query": "t", "key": "rowid"},
        ),
        ({"a.db": VIEW}, [{"k": "a", "v": 1}], {"query": "t"}),
        ({"a.db": VIEW}, [{"v": 1, "k": "a"}], {"query": "seen"}),
        ({"a.db": VIEW}, [{"v": 1}], {"query": "SELECT v FROM t -- all", "key": "v"}),
        ({"a.db": database([(9, 1), (8, 2)])}, _PAIRS, {"query": "some rows", "key": "rowid"}),
        ({"a.db": database([(9, 1), (8, 2)])}, _PAIRS[::-1], {"query": "Some Rows;"}),
    ],
    "files": [(_WHOLE, [{"name": name, "data": _WHOLE[name]} for name in _WHOLE])],
}
