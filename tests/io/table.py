"""The table of formats: what every reader of `lazyckpt.io` is held to by the laws."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

import lazyckpt as lz
from tests.io import contents
from tests.io.contents import Contents, named
from tests.io.faults import BAD, DAMAGED, UNFIT
from tests.io.formats import (
    COMPRESSIONS,
    archive,
    compressed,
    database,
    mds,
    megatron,
    record,
    saved,
)
from tests.io.odd import ODD
from tests.io.tables import write


class Fault(NamedTuple):
    """Files that can't be opened; if they have rows, None stands for a row that raises."""

    found: Contents
    message: str
    error: type[Exception]


@dataclass(frozen=True, kw_only=True)
class Format:
    """A format, with the facts that laws need.

    - `reader`: the name of its reader
    - `pattern`: the pattern of its files
    - `random`: random files
    - `example`: files that are always the same, two if there may be several
    - `odd`: unusual files
    - `given`: required arguments of the reader
    - `options`: arguments of the reader that change no row
    - `spoil`: a function from a record's bytes to bytes that can't be read
    - `faults`: files that can't be read, or with records that can't be read
    - `none`: contents of a different format, as an error at opening says
    - `is_checked`: whether checksums protect each row; otherwise rows may be misread
    - `is_foreign`: whether foreign code parses it, which any damage may lead astray
    - `is_local`: whether its files must be on this machine
    - `compression`: the compression of its files
    """

    reader: str
    pattern: str
    random: st.SearchStrategy[Contents]
    example: Contents
    odd: Sequence[Contents] = ()
    given: Mapping[str, Any] = field(default_factory=dict)
    options: st.SearchStrategy[dict[str, Any]] = field(default_factory=lambda: st.just({}))
    spoil: Callable[[bytes], bytes] | None = None
    faults: Sequence[Fault] = ()
    none: Sequence[bytes] = ()
    is_checked: bool = False
    is_foreign: bool = False
    is_local: bool = False
    compression: str = ""

    def read(self, files: Any, **options: Any) -> lz.io.Rows[Any]:
        """The rows of files; options that the reader doesn't have are left out."""
        known = {name: value for name, value in options.items() if self.has(name)}
        rows: lz.io.Rows[Any] = getattr(lz.io, self.reader)(files, **self.given | known)
        return rows

    def has(self, option: str) -> bool:
        return option in inspect.signature(getattr(lz.io, self.reader)).parameters

    def compressed(self, kind: str) -> Format:
        """The format with its files compressed."""
        sizes = st.sampled_from([1 << 20, 700])
        return replace(
            self,
            pattern=f"{self.pattern}{COMPRESSIONS[kind][0]}",
            random=st.builds(_compressed, self.random, st.just(kind), sizes),
            example=_compressed(self.example, kind),
            odd=[_compressed(found, kind) for found in self.odd if _is_alone(found)],
            faults=[
                fault._replace(found=_compressed(fault.found, kind))
                for fault in self.faults
                if fault.found.rows and _is_alone(fault.found)
            ],
            spoil=None,
            none=(),
            is_checked=self.is_checked or kind.startswith(("gzip", "bgzf")),
            compression=kind,
        )


def _compressed(found: Contents, kind: str, size: int = 700) -> Contents:
    suffix = COMPRESSIONS[kind][0]
    files = {name: compressed(found.files[name], kind, size) for name in found.files}
    return found._replace(files={f"{name}{suffix}": files[name] for name in files})


def _is_alone(found: Contents) -> bool:
    """Whether files have no index next to them, and aren't compressed themselves."""
    ends = {name.rpartition(".")[2].lower() for name in found.files}
    return "compression" not in found.given and not ends & {"idx", "gz", "zst", "tgz"}


def one_of(**options: list[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({name: st.sampled_from(some) for name, some in options.items()})


# Examples are two files of these numbers.
COUNT = 24
HALVES = [range(16), range(16, COUNT)]


def example(suffix: str, write: Callable[[range], bytes], row: Callable[[int], Any]) -> Contents:
    return named([write(half) for half in HALVES], suffix, [row(n) for n in range(COUNT)])


def joined(line: Callable[[int], bytes], before: bytes = b"") -> Callable[[range], bytes]:
    """A function that writes a number over a record."""
    return lambda half: before + b"".join(map(line, half))


def spoilt(end: bytes) -> Callable[[bytes], bytes]:
    """A function that writes such an end over a record's end."""
    return lambda found: found[: len(found) - len(end)] + end


_TEXT = Format(
    reader="read_text",
    pattern="*.txt",
    random=contents.lines(),
    example=example(".txt", joined(lambda n: b"%d\n" % 5**n), lambda n: f"{5**n}"),
    spoil=spoilt(b"\xff\n"),
)
_JSONL = Format(
    reader="read_jsonl",
    pattern="*.jsonl",
    random=contents.json_lines(),
    example=example(".jsonl", joined(lambda n: b"[%d]\n" % 5**n), lambda n: [5**n]),
    options=one_of(loads=[None, json.loads]),
    spoil=spoilt(b"{\n"),
    none=[b"[\n1,\n2\n]\n"],
)
_CSV = Format(
    reader="read_csv",
    pattern="*.csv",
    random=contents.csv_records(),
    example=example(
        ".csv",
        joined(lambda n: b'%d,"x\n""%d"""\n' % (n, 5**n), b"a,b\n"),
        lambda n: {"a": f"{n}", "b": f'x\n"{5**n}"'},
    ),
    spoil=lambda found: b"\xff" + found[1:],
)
_TAR = Format(
    reader="read_tar",
    pattern="*.tar",
    random=contents.samples(),
    example=example(
        ".tar",
        lambda half: archive([(f"{n}.txt", b"%d" % 5**n * (n + 1) * 9) for n in half]),
        lambda n: {"__key__": f"{n}", "txt": b"%d" % 5**n * (n + 1) * 9},
    ),
    none=[b"", b"no tar at all", b"x" * 2000],
)
_TFRECORD = Format(
    reader="read_tfrecord",
    pattern="*.tfrecord",
    random=contents.tf_records(),
    example=example(
        ".tfrecord",
        joined(lambda n: record(b"x" * 9 + b"%d" % 5**n)),
        lambda n: b"x" * 9 + b"%d" % 5**n,
    ),
    options=one_of(check_crc=[True, False]),
    spoil=lambda found: found[:12] + b"W" + found[13:],
    is_checked=True,
)


def _table(half: range) -> Any:
    return pa.table({"n": half, "text": [f"{n} " * 99 for n in half]})


def _row(n: int) -> dict[str, Any]:
    return {"n": np.int64(n), "text": f"{n} " * 99}


def _in_tables(form: str, codec: str, **told: Any) -> Format:
    def written(half: range) -> bytes:
        return saved(lambda out: write(_table(half), out, form, 5, codec))

    return Format(
        pattern=f"*.{form}",
        random=contents.in_tables(form),
        example=example(f".{form}", written, _row),
        options=one_of(cache_bytes=[0, 300, 1 << 28]),
        is_foreign=True,
        **told,
    )


_PARQUET = _in_tables(
    "parquet",
    "snappy",
    reader="read_parquet",
    spoil=lambda found: found[:4] + bytes(len(found) - 8) + found[-4:],
    none=[
        b"",
        b"PAR1",
        b"no Parquet at all",
        b"PAR1" + b"x" * 99,
        b"PAR1" + b"x" * 50 + b"\x32\0\0\0PAR1",
    ],
)
_ARROW, _STREAM = (
    _in_tables(
        form,
        "zstd",
        reader="read_arrow",
        spoil=lambda found: found[:-60] + b"\xff" * 40 + found[-20:],
        none=[b"", b"no file of Arrow's at all", b"FEA1" + bytes(50) + b"FEA1"],
    )
    for form in ("arrow", "stream")
)


def _numbers(half: range) -> np.ndarray[Any, Any]:
    return np.arange(3 * half.start, 3 * half.stop, dtype="<u2")


def _three(n: int) -> np.ndarray[Any, Any]:
    return np.arange(3 * n, 3 * n + 3, dtype="<u2")


def _arrays(suffix: str, write: Callable[[Any, Any], Any], **given: Any) -> Format:
    return Format(
        reader="read_tokens",
        pattern=f"*{suffix}",
        random=contents.arrays(suffix, write),
        example=example(suffix, lambda half: saved(lambda out: write(out, _numbers(half))), _three),
        given={"length": 3, **given},
        none=[] if given else [b"", b"no array"],
    )


_DOCUMENTS = Format(
    reader="read_tokens",
    pattern="*.bin",
    random=contents.documents(),
    example=Contents(
        megatron([[[*_three(n).tolist()] for n in half] for half in HALVES]),
        [*map(_three, range(COUNT))],
    ),
)


def _sample(n: int) -> dict[str, Any]:
    return {"text": f"{5**n}", "number": np.int32(n)}


def _shards(compression: str) -> Contents:
    files = mds([[*map(_sample, half)] for half in HALVES], compression)
    return Contents(files, [*map(_sample, range(COUNT))])


_MDS = Format(
    reader="read_mds",
    pattern="index.json",
    random=contents.shards(),
    example=_shards(""),
    spoil=lambda found: b"\xc8" + found[1:],
    none=[b"[", b"[]", b'{"shards": 1}', b'{"shards": [{}]}'],
)
_SQLITE = Format(
    reader="read_sqlite",
    pattern="a.db",
    random=contents.databases(),
    example=Contents(
        {"a.db": database([(n, f"{n}") for n in range(COUNT)])},
        [{"k": n, "v": f"{n}"} for n in range(COUNT)],
    ),
    given={"query": 'SELECT * FROM "some rows"', "key": "k"},
    none=[b"no database at all" * 99],
    is_local=True,
)

_BLOBS = [b"%d" % 5**n for n in range(COUNT)]
_FILES = Format(
    reader="read_files",
    pattern="*.raw",
    random=contents.blobs(),
    example=named(
        _BLOBS, ".raw", [{"name": f"{n:03}.raw", "data": blob} for n, blob in enumerate(_BLOBS)]
    ),
)


def _told(name: str, form: Format) -> Format:
    """With its unusual and faulty files."""
    suffix = form.pattern.removeprefix("*")
    odd = [named(found, suffix, rows, *given) for found, rows, *given in ODD.get(name, [])]
    faults = [
        Fault(named(found, suffix, [], *given), message, error)
        for table, error in ((DAMAGED, lz.io.RecordError), (UNFIT, lz.ArgumentError))
        for found, message, *given in table.get(name, [])
    ]
    faults += [
        Fault(named(found, suffix, rows, *given), message, lz.io.RecordError)
        for found, rows, message, *given in BAD.get(name, [])
    ]
    return replace(form, odd=odd, faults=faults)


ALONE = {
    "text": _TEXT,
    "jsonl": _JSONL,
    "csv": _CSV,
    "tar": _TAR,
    "tfrecord": _TFRECORD,
    "parquet": _PARQUET,
    "arrow": _ARROW,
    "arrow stream": _STREAM,
    "npy": _arrays(".npy", np.save),
    "npz": _arrays(".npz", np.savez),
    "bin": _arrays(".bin", lambda out, found: out.write(found.tobytes()), dtype="uint16"),
    "documents": _DOCUMENTS,
    "mds": _MDS,
    "sqlite": _SQLITE,
    "files": _FILES,
}
FORMATS = {name: _told(name, form) for name, form in ALONE.items()}
FORMATS |= {
    f"{name}, {kind}": FORMATS[name].compressed(kind)
    for name in ("text", "jsonl", "csv", "tar", "tfrecord")
    for kind in COMPRESSIONS
    if name == "text" or "," not in kind
}
FORMATS |= {
    f"mds, {kind}": replace(_MDS, example=_shards(kind), compression=kind, spoil=None, none=[])
    for kind in ("gzip", "zstd")
}
