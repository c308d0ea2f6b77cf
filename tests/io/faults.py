"""Files that can't be read, or with records that can't, and their errors.

The arguments of a reader come last.
"""

from __future__ import annotations

import bz2
import json
import lzma
import tarfile
from collections.abc import Callable
from gzip import compress as gzip
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from lazyckpt.io import text
from tests.io.cases import zstd
from tests.io.formats import (
    archive,
    database,
    header_of,
    in_batches,
    mds,
    megatron,
    megatron_index,
    members_of,
    record,
    saved,
    sparse,
    statements,
)  # fmt: skip
from tests.io.odd import NESTED, VIEW, llm_c, of_mosaic

_ONE = "it is a single JSON value, not JSON lines"
_LLM_C = r"000\.bin begins with .*llm\.c: pass offset=1024"
_SAMPLES = [{"txt": b"a" * 600, "cls": b"1"} for _ in range(3)]  # 2,560 bytes each
_ARCHIVE = archive(members_of(_SAMPLES))
_ROWS = [{"__key__": f"d/{n}", **row} for n, row in enumerate(_SAMPLES)]
_SPARSE = sparse(tarfile.GNU_FORMAT)
_RECORDS = b"".join(map(record, [b"first", b"second", b"third"]))
_SHARDS = [[{"text": f"{n}", "number": n} for n in some] for some in (range(2), range(2, 5))]


_FILTERS = {"filters": [("z", "==", 1)]}
_ROWID, _Z, _D = {"key": "rowid"}, {"columns": ["z"]}, {"columns": ["b.d"]}


_NAMES = "columns must be a list of column names"
_OTHERS = "columns must be a list of different names or None"


def _array(values: Any) -> bytes:
    return saved(lambda out: np.save(out, values))


def _tables(*found: Any) -> list[bytes]:
    return [saved(lambda out, t=table: parquet.write_table(t, out)) for table in found]


def _with_index(bounds: list[int]) -> dict[str, bytes]:
    """An archive of two samples, and an index of energon."""
    index = np.array(bounds, "<u8").tobytes()
    return {"0.tar": archive(members_of([{"txt": b"a"}, {"txt": b"b"}])), "0.tar.idx": index}


def _size_below_zero(kind: bytes) -> bytes:
    """An archive whose third header, of a kind, says so."""
    header = bytearray(_ARCHIVE[2560 : 2560 + 512])
    header[124:136], header[156:157] = b"\xff" * 12, kind
    return _ARCHIVE[:2560] + header_of(header) + _ARCHIVE[2560 + 512 :]


def _endless() -> bytes:
    info = tarfile.TarInfo("x")
    info.size, info.type = 1 << 40, tarfile.XHDTYPE
    return info.tobuf(tarfile.GNU_FORMAT)


def _growing() -> bytes:
    """A stream of a dictionary that grows."""
    words = [pa.array([word]).dictionary_encode() for word in ("one", "two")]
    batches = [pa.record_batch({"d": each}) for each in words]
    return in_batches(batches, pa.ipc.new_stream)


def _beside(index: bytes, tokens: int = 14) -> dict[str, bytes]:
    return {"000.bin": np.arange(tokens, dtype="<u2").tobytes(), "000.idx": index}


def _unsized(change: Callable[[bytes], bytes]) -> dict[str, bytes]:
    """A shard that is changed, whose size isn't said."""
    found = mds(_SHARDS)
    said = json.loads(found["index.json"])
    del said["shards"][1]["raw_data"]["bytes"]
    name = "shard.00001.mds"
    return {**found, name: change(found[name]), "index.json": json.dumps(said).encode()}


# Of files that can't be opened: RecordError.
DAMAGED: dict[str, list[tuple[Any, ...]]] = {
    "jsonl": [
        (json.dumps([{"a": 1}, 2], indent=1).encode(), _ONE),
        ({"0.json": json.dumps({"a": [1, 2]}, indent=1).encode()}, _ONE),
        ({"0.json": b'[{"a": 1},\n{"a": 2}]\n'}, _ONE),
        ({"0.json": json.dumps([{"a": 1}, 2]).encode()}, _ONE),
        ({"0.json.gz": gzip("\ufeff[1, 2]\n\n".encode())}, _ONE),
    ],
    "csv": [
        ("größe,b\n1,2\n".encode("latin-1"), r"000\.csv: .*'utf-8' codec can't decode"),
        ("a,b\n1,2\n".encode("utf-16"), r"000\.csv: .*'utf-8' codec can't decode"),
        (b'a,"b" x\n1,2\n', r"000\.csv: .*',' expected after '\"'"),
        (b'a,"b\n1,2\n', r"000\.csv: .*unexpected end of data"),
    ],
    "tar": [
        (_endless(), "it doesn't begin with a tar header"),
        *(
            (_with_index(bounds), r"/0\.tar\.idx: not an index of .*0\.tar, or of a")
            for bounds in ([], [0], [5, 9], [0, 1024, 512], [0, 10**9])
        ),
    ],
    "arrow": [
        (_growing(), r"000\.arrow: a dictionary changes after record batch"),
        ({"0.feather": b"FEA1" + bytes(50) + b"FEA1"}, r"0\.feather: it is Feather version 1"),
    ],
    "bin": [
        (b"123", r"000\.bin: 3 bytes are not a whole number of uint16"),
        (llm_c(), "bytes, fewer than offset=5,000", {"offset": 5000}),
        (llm_c(49), r"000\.bin: its header says 50 tokens, but it has", {"offset": 1024}),
    ],
    "documents": [
        (_beside(megatron_index([7, 7]) + bytes(1)), r"000\.idx: it is cut, or of a diff"),
        *(
            (_beside(megatron_index([2, 1]), size), r"000\.idx: its sequences don't fit ")
            for size in (2, 4)
        ),
        *(
            (_beside(megatron_index(lengths, ends)), r"000\.idx: its (documents|sequences) ")
            for lengths, ends in [
                ([3, 2, 4, 5], [0, 1, 2]),  # as merged without the documents of the other file
                ([3, 2], [0, 1, 5]),
                ([3, 2], [1, 2]),
                ([3, 2], [0, -1, 2]),
                ([3, 2, 2], [0, 3, 1, 3]),
                ([3, 2], []),
                ([5, -2, 2], [0, 1, 2, 3]),
            ]
        ),
    ],
    "mds": [
        *(
            (mds(_SHARDS, **change), message)
            for change, message in [
                ({"samples": 4}, r"00001\.mds: index\.json says 4 samples, but it has 3"),
                ({"column_sizes": [None, 8]}, r"index\.json: .*'number' of 'int32' can't have 8"),
                ({"format": "json"}, r"index\.json: .*must be of MDS's version 2, got \('json',"),
                ({"column_names": ["a", "a"]}, r"index\.json: .*columns must have different na"),
                ({"column_encodings": ["str"]}, r"index\.json: not a valid list of shards: "),
                ({"raw_data": {}}, r"index\.json: not a valid list of shards: "),
                ({"raw_data": {"basename": "shard.00001.mds", "bytes": 9}}, "says 9 bytes, but "),
            ]
        ),
        *(
            (_unsized(lambda found, size=size: found[:size]), "not a shard, or it is cut: ")
            for size in (0, 3, 4, 20, 40)
        ),
        (_unsized(lambda found: found + b"x"), "not a shard, or it is cut: "),
    ],
    "sqlite": [
        ({"a.db": VIEW}, r"a\.db: no such table: other: SELECT", {"query": "other"}),
        ({"a.db": VIEW}, r"no such column: rowid: .*; views, .*pass key", {"query": "t", **_ROWID}),
        ({"a.db": VIEW}, "no (such )?column", {"query": "t", "key": "other"}),
    ],
}  # fmt: skip

_FIRST = "by its first bytes it is compressed"
_HEADS = {
    "lz4": b"\x04\x22\x4d\x18",
    "zip": b"PK\3\4",
    "Z": b"\x1f\x9d\x90",
    "sz": b"\xff\6\0\0sNaPpY",
}
_KINDS = {"gzip": gzip, "zstd": zstd.compress, "xz": lzma.compress, "bz2": bz2.compress}
COMPRESSED = [
    *(
        ({f"0.{suffix}": b"1\n"}, rf"0\.{suffix}.* is not supported; compress it as \.gz or ")
        for suffix in ("lz4", "br", "Z", "zip", "7z")
    ),
    *(
        ({f"0.{name}": head + bytes(600)}, rf"{_FIRST} as \.{kind}, which is not supported")
        for name in ("txt", "gz", "tar")
        for kind, head in _HEADS.items()
    ),
]
OTHERWISE = [
    ({name: compress(b"1\n2\n")}, f"/{name}: {_FIRST} by {kind}; rename it with that suffix")
    for name, own in {"0.txt": "", "0.gz": "gzip", "0.zst": "zstd"}.items()
    for kind, compress in _KINDS.items()
    if kind != own
]

# Files that can't be opened with these arguments: ArgumentError.
UNFIT: dict[str, list[tuple[Any, ...]]] = {
    "text": [
        *COMPRESSED,
        *OTHERWISE,
        *(({f"0.{name}": b"a line"}, rf"/0\.{name}: .* not \w+; ") for name in ("gz", "zst")),
        ({"0.bz2": bz2.compress(b"1\n")}, r"\.bz2 has no random access; read it as a stream"),
        ({"0.xz": b"1\n"}, r"\.xz has no random access.*iter_text"),
        (b"1\n", "encoding must be an encoding in which", {"encoding": "utf-16"}),
        (b"1\n", "encoding must be", {"encoding": "no-such"}),
        (b"1\n", "errors must be one of Python's error handlers", {"errors": "loose"}),
        (b"1\n", "max_record_bytes must be an int >= 1", {"max_record_bytes": 0}),
        (b"1\n", "compression must be 'infer', 'none', 'gzip' or 'zstd'", {"compression": "xz"}),
        (b"1\n", "executor must be", {"executor": 4}),
    ],
    "jsonl": [
        *OTHERWISE,
        (b"1\n", "a newline is one byte", {"encoding": "utf-16"}),
    ],
    "files": [(b"", "max_record_bytes must be an int >= 1", {"max_record_bytes": 0})],
    "tar": COMPRESSED,
    "csv": [
        *OTHERWISE,
        (b"1\n", _OTHERS, {"columns": "ab"}),
        (b"1\n", _OTHERS, {"columns": ["a", "a"]}),
        (b"1\n", "delimiter must be one ASCII character", {"delimiter": "||"}),
        (b"1\n", "quotechar must be one ASCII character or None", {"quotechar": "\n"}),
        (b"a,a\n", "must have different names.*skip_lines=1 renames them"),
    ],
    "tfrecord": [
        (gzip(_RECORDS), r'000\.tfrecord: .* or pass compression="gzip"'),
        (b"", "check_crc must be True or False", {"check_crc": 1}),
    ],
    "arrow": [
        (in_batches([pa.record_batch({"n": [1]})]), r"no column 'z' in .*which has \['n'\]", _Z),
        (in_batches([pa.record_batch({"n": [1]})]), _NAMES, {"columns": "n"}),
    ],
    "parquet": [
        (_tables(NESTED), r"no column 'z' in .*/000.parquet, which has \['a'", _Z),
        (_tables(NESTED, pa.table({"b": [{"c": 2}]})), "no column 'b.d' in .*/001", _D),
        (_tables(NESTED, pa.table({"b": [{"d": "x"}]})), "'b' is .* in .*/001", _D),
        (_tables(NESTED, pa.table({"b": [3]})), "/001.parquet has no column 'a', which .*/000"),
        (_tables(NESTED), _NAMES, {"columns": "n"}),
        (_tables(NESTED), _NAMES, {"columns": []}),
        (_tables(NESTED), _NAMES, {"columns": [1]}),
        (_tables(NESTED), "cache_bytes must be an int >= 0", {"cache_bytes": -1}),
        (_tables(NESTED), r"must look like .*\('a', '~', 1\)\]", {"filters": [("a", "~", 1)]}),
        (_tables(NESTED), "filters must look like", {"filters": 3}),
        (_tables(NESTED), r"don't fit .*columns \['a', 'b', 'e'\], got filters=", _FILTERS),
    ],
    "npy": [
        *(
            (_array(values), r"000\.npy must hold numbers in one dimension, or")
            for values in (
                np.zeros((2, 2, 2)), np.array([{}]), np.zeros((5, 0)), np.array(["a"]),
                np.zeros(2, "V3"),
            )
        ),
        (
            _array(np.asfortranarray(np.zeros((2, 3)))),
            r"000\.npy .*fortran_order=True; save np\.ascontiguousarray",
        ),
        (_array(range(4)), "length must be an int >= 1 or None", {"length": 0}),
        (_array(range(4)), "type of little-endian numbers, such as 'uint16'", {"dtype": "text"}),
        (_array(range(4)), "type of little-endian numbers, such as 'uint16'", {"dtype": ">u2"}),
        (_array(range(4)), "name must be a str", {"name": 3}),
        (_array(range(4)), "stride=2 needs length", {"length": None, "stride": 2}),
    ],
    "npz": [
        (saved(lambda out: np.savez(out, x=[1], y=[2])), r"name must be .* one of \['x', 'y'\]"),
        (saved(lambda out: np.savez_compressed(out, x=[1])), r"'x' in .*000\.npz is compressed: "),
    ],
    "bin": [
        (b"1234", r"000\.bin doesn't store .*: pass dtype=", {"dtype": None}),
        (b"1234", r"000\.bin doesn't store where documents end: pass length", {"length": None}),
        (llm_c(), _LLM_C),
        (llm_c(49), _LLM_C),
    ],
    "documents": [(megatron([[[1]]]), r"\.idx defines .*; remove offset=2", {"offset": 2})],
    "mds": [
        (mds(_SHARDS, column_encodings=["bytes", "int32"]), r"the same layout, got .*00001\.mds "),
        (mds(_SHARDS[:1], column_encodings=["str", "int32x"]), "'number' .* encoded as 'int32x'"),
        ({"index.json": b'{"shards": []}'}, r"files must include an index\.json"),
        (of_mosaic("none"), "'pkl', which is not supported: it may execute"),
        (of_mosaic("none"), "no column 'other' in ", {"columns": ["other"]}),
        (of_mosaic("bz2"), r"00000\.mds\.bz2: \.bz2 has no random acc", {"columns": ["str"]}),
    ],
    "sqlite": [
        ({"a.db": database([(1, 1), (1, 2)])}, "key must be unique and not NULL, but 1 is"),
        ({"a.db": database([(1, 1), (None, 2)])}, "key must be unique and not NULL, but None is"),
        (
            {"a.db": database([("a", 1), ("A", 2), ("a", 3)], "k TEXT COLLATE NOCASE, v")},
            "key must be unique and not NULL, but 'a' is",
        ),
        ({"a.db": VIEW}, r"a\.db.*key='rowid'; views, .*pass key", {"query": "seen", **_ROWID}),
        ({"a.db": VIEW}, "query must be a str that isn't empty", {"query": " "}),
    ],
}  # fmt: skip

# Rows of files, None if an error names the record.
BAD: dict[str, list[tuple[Any, ...]]] = {
    "text": [
        (
            [b"good\n", b"one\nb\xffd\nthree\n"], ["good", "one", None, "three"],
            r"record 1 at byte 4 of .*/001\.txt.*: 'utf-8' codec can't decode byte 0xff",
        ),
    ],
    "jsonl": [
        (b"1\n{\n3\n", [1, None, 3], r"record 1 at byte 2 of .*/000\.jsonl.*: "),
        (b"[NaN]\n1\n", [None, 1], "record 0 at byte 0 of "),
        (b"[-Infinity]\n1\n", [None, 1], "-Infinity is not JSON", {"loads": text.plain_loads}),
        ('"é"\n1\n'.encode("latin-1"), [None, 1], "record 0 at byte 0 of "),
    ],
    "csv": [
        (b"x,y\n0,0\n" + end, [{"x": "0", "y": "0"}, None], f"record 1 at byte 8 of .*: .*{reason}")
        for end, reason in [
            (b"1", "1 fields, but there are 2 columns"),
            (b"1,2,3", "3 fields, but there are 2 columns"),
            (b"1,\xff", "can't decode byte 0xff"),
            (b'1,"2', "unexpected end of data"),
            (b'1,"2"3', "',' expected after '\"'"),
            (b'1,"2\n3,4\n', "unexpected end of data"),
            (b"1," + b"2" * (1 << 18), "field larger than field limit"),
        ]
    ],
    "tar": [
        (_ARCHIVE[: 2560 - 200], [None], r"record 0 at byte 0 of .*/000\.tar.*: "),
        *(
            (_ARCHIVE[: 2 * 2560 + more], [*_ROWS[:2], None], "record 2 at byte 5,120 of .*/000")
            for more in (512, 700)
        ),
        # a header that can't be read may be of one more member
        (_ARCHIVE[: 2 * 2560 + 100], [_ROWS[0], None], "record 1 at byte 2,560 of .*/000"),
        *(
            (content, [None], r"record 0 at byte 0 of .*: ")
            for content in [
                _ARCHIVE[:2580] + b"\xff" + _ARCHIVE[2581:],
                *map(_size_below_zero, (b"0", b"x", b"L")),
            ]
        ),
        (archive([("1.txt", b"a"), ("1.TXT", b"b")]), [None], "record 0 at byte 0 of .*'1.TXT' in"),
        *(
            (sparse(form, 1 << 30), [None], r"record 0 at byte 0 of .*'d/1\.txt' has 1,073,74")
            for form in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)
        ),
        (_SPARSE[:1016] + b"\1" + _SPARSE[1017:1024], [None], "record 0 at byte 0 of "),
        (_with_index([0, 2048]), [None], r"record 0 at byte 0 of .*: 'd/1.txt' in the sampl"),
    ],
    "tfrecord": [
        (
            [_RECORDS[:22] + b"\xff" + _RECORDS[23:], record(b"more")], [b"first", None, b"more"],
            r"record 1 at byte 21 of .*/000.*: the checksum of its length",
        ),
        (
            _RECORDS.replace(b"second", b"sdcond"), [b"first", None, b"third"],
            r"record 1 at byte 21 of .*/000.*: its checksum is wrong",
        ),
        (b"no such file at all", [None], "record 0 at byte 0 .*: the checksum of its length"),
    ],
    "sqlite": [
        (
            {"a.db": statements(
                "CREATE TABLE t (v)", "INSERT INTO t VALUES ('a'), (CAST(x'ff' AS TEXT)), ('c')"
            )},
            [{"v": "a"}, None, {"v": "c"}],
            r"record 1 at byte 0 of .*/a\.db: ",
            {"query": "t", **_ROWID},
        ),
    ],
}  # fmt: skip
