"""`read_tokens`: rows of tokens, from files of plain numbers."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.lib import format as npy
from numpy.typing import DTypeLike, NDArray

from lazyckpt.core.checks import Unfit, checked, natural, optional, positive
from lazyckpt.errors import ArgumentError
from lazyckpt.io.files import Files, as_files
from lazyckpt.io.rows import RecordError, Rows, decoding
from lazyckpt.io.storage import File, FileObject, storage_of

_MAGIC = b"MMIDIDX\x00\x00"
_HEADER = struct.Struct("<9sQBQQ")  # of a Megatron index: magic, version, type and two counts
MEGATRON_TYPES = ["", "u1", "i1", "<i2", "<i4", "<i8", "<f8", "<f4", "<u2"]

_LLM_C = struct.Struct("<3i")  # start of a file of llm.c: a magic number, version, count
_LLM_C_SIZE, _LLM_C_MAGIC = 1024, {20240520, 20240801}  # bytes before its tokens

_NPY = 1 << 16  # bytes that hold the header of an array; NumPy reads at most 10,000


class TokenPart(NamedTuple):
    """The location of numbers in a file.

    - `dtype`: their type
    - `start`: byte offset of the first one
    - `size`: how many there are
    - `length`: how many are in a row; 0 for documents
    - `stride`: how many there are from the start of one row to the start of the next
    - `megatron`: the index next to the file, if there is one
    """

    dtype: np.dtype[Any]
    start: int
    size: int
    length: int = 0
    stride: int = 0
    megatron: File | None = None


class TokenRows(Rows[NDArray[Any]]):
    """Rows of tokens as arrays: rows of one length, starting every `stride` tokens, or documents.

    Args:
        files: The files.
        parts: Location of the tokens in each file.
        arguments: The reader's arguments; None for those at their defaults.
    """

    def __init__(
        self, files: Files, parts: Sequence[TokenPart], arguments: Mapping[str, Any]
    ) -> None:
        self._parts, counts, sums = parts, [], []
        for file, part in zip(files, parts, strict=True):
            kind = zlib.crc32(part.dtype.str.encode())
            if part.length:
                counts.append(max(0, (part.size - part.length) // part.stride + 1))
                sums.append(kind)
            else:
                bounds = _documents(file, part)
                counts.append(len(bounds) - 1)
                sums.append(zlib.crc32(bounds.tobytes(), kind))
        given = {name: value for name, value in arguments.items() if value is not None}
        super().__init__("read_tokens", files, counts, given)
        self.sums = sums

    @property
    def lengths(self) -> NDArray[np.int64]:
        """The number of tokens per row, of shape `(n,)`, for `plan_packing`; reads no tokens."""
        found = [
            np.full(end - begin, part.length) if part.length else np.diff(_documents(file, part))
            for file, part, (begin, end) in zip(
                self.files, self._parts, pairwise(self._begins), strict=False
            )
        ]
        return np.concatenate([np.empty(0, np.int64), *found])

    def read_rows(self, number: int, records: Sequence[int]) -> list[NDArray[Any]]:
        file, dtype = self.files[number], self._parts[number].dtype
        spans = [self.span(number, record) for record in records]
        first, last = spans[0][0], max(stop for _, stop in spans)
        if last - first > 2 * sum(stop - start for start, stop in spans):  # they are far apart
            found = storage_of(file.path).read_ranges(file, spans)
        else:
            content = storage_of(file.path).read(file, first, last)
            found = [content[start - first : stop - first] for start, stop in spans]
        return [np.frombuffer(each, dtype) for each in found]

    def read_block(self, number: int, record: int, budget: int) -> list[NDArray[Any]]:
        records = range(record, self._begins[number + 1] - self._begins[number])
        end = self.span(number, record)[0] + budget
        count = bisect_right(records, end, key=lambda each: self.span(number, each)[1])
        return self.read_rows(number, records[: max(1, count)])

    def span(self, number: int, record: int) -> tuple[int, int]:
        part = self._parts[number]
        if part.length:
            first, last = record * part.stride, record * part.stride + part.length
        else:
            first, last = _documents(self.files[number], part)[record : record + 2].tolist()
        return part.start + first * part.dtype.itemsize, part.start + last * part.dtype.itemsize


def _part(file: File, dtype: np.dtype[Any] | None, offset: int, name: str | None) -> TokenPart:
    if file.path.endswith(".npy"):
        if _is_array(file):
            return _array(file, 0)
        if dtype is None:
            raise RecordError(
                f"{file.path}: it has no header of NumPy; if it holds plain numbers, pass "
                'dtype="uint16"'
            )
    if file.path.endswith(".npz"):
        return _member(file, name)
    index = _index_of(file)
    if index is not None and offset:
        raise ArgumentError(
            f"read_tokens: {index.path} defines where tokens are; remove offset={offset}"
        )
    found = dtype if index is None else _header(index)[0]
    if found is None:
        raise ArgumentError(
            f'read_tokens: {file.path} doesn\'t store the type of its tokens: pass dtype="uint16"'
        )
    size = file.size - offset
    if size < 0:
        raise RecordError(f"{file.path}: it has {file.size:,} bytes, fewer than offset={offset:,}")
    if size % found.itemsize:
        raise RecordError(f"{file.path}: {size:,} bytes are not a whole number of {found.name}")
    if index is None and file.size >= _LLM_C_SIZE:
        _check_llm_c(file, found, offset)
    return TokenPart(found, offset, size // found.itemsize, megatron=index)


def _check_llm_c(file: File, dtype: np.dtype[Any], offset: int) -> None:
    """Raise an error if a header of llm.c would be read as tokens, or has a wrong count."""
    head = storage_of(file.path).read(file, 0, _LLM_C.size)
    magic, _, count = _LLM_C.unpack(head)
    if magic in _LLM_C_MAGIC and offset < _LLM_C_SIZE:
        raise ArgumentError(
            f"read_tokens: {file.path} begins with a header of llm.c: pass offset={_LLM_C_SIZE}"
        )
    size = (file.size - offset) // dtype.itemsize
    if magic in _LLM_C_MAGIC and offset == _LLM_C_SIZE and count != size:
        raise RecordError(f"{file.path}: its header says {count:,} tokens, but it has {size:,}")


def _is_array(file: File) -> bool:
    """Return whether a file begins with NumPy's header."""
    stop = min(len(npy.MAGIC_PREFIX), file.size)
    return storage_of(file.path).read(file, 0, stop) == npy.MAGIC_PREFIX


def _array(file: File, start: int) -> TokenPart:
    """Return the location of an array whose NumPy header begins at byte `start` of a file."""
    stop = min(start + _NPY, file.size)
    source = io.BytesIO(storage_of(file.path).read(file, start, stop))
    with decoding(file):
        version = npy.read_magic(source)
        read: Callable[[Any], Any] = npy.read_array_header_1_0
        if version != (1, 0):
            read = npy.read_array_header_2_0
        shape, is_fortran, dtype = read(source)
        begin = start + source.tell()
    if is_fortran and len(shape) > 1:
        raise ArgumentError(
            f"read_tokens: {file.path} is stored by columns, with fortran_order=True; save "
            "np.ascontiguousarray(array) instead"
        )
    is_plain = len(shape) == 1 or (len(shape) == 2 and shape[1])
    if dtype.kind not in "biufc" or not is_plain:
        raise ArgumentError(
            f"read_tokens: {file.path} must hold numbers in one dimension, or rows of them, "
            f"got shape={shape}, dtype={dtype}"
        )
    size = prod(shape)
    if min(shape) < 0 or begin + size * dtype.itemsize > file.size:
        raise RecordError(f"{file.path}: it is cut: {shape} of {dtype} don't fit into its bytes")
    return TokenPart(dtype, begin, size, *shape[1:] * 2)


def _member(file: File, name: str | None) -> TokenPart:
    """Return the location of an uncompressed array in an `.npz`."""
    source = FileObject(file)
    with decoding(file):
        try:
            members = zipfile.ZipFile(source).infolist()
        except Exception as error:
            raise source.error or error from error  # zipfile blames the archive for a failing disk
    found = {each.filename.removesuffix(".npy"): each for each in members}
    chosen = name if name is not None or len(found) != 1 else next(iter(found))
    if chosen not in found:
        raise ArgumentError(
            f"read_tokens: name must be an array in {file.path}, one of {[*found]}, "
            f"got name={name!r}"
        )
    info = found[chosen]
    if info.compress_type != zipfile.ZIP_STORED:
        raise ArgumentError(
            f"read_tokens: {chosen!r} in {file.path} is compressed: numpy.savez writes one that "
            "isn't"
        )
    with decoding(file):
        source.seek(info.header_offset + 26)
        name_size, extra_size = struct.unpack("<2H", source.read(4))
    return _array(file, info.header_offset + 30 + name_size + extra_size)


def _index_of(file: File) -> File | None:
    """Return the Megatron index next to a file of tokens; None if there is none."""
    if not file.path.endswith(".bin"):
        return None
    path = f"{file.path.removesuffix('.bin')}.idx"
    try:
        return storage_of(path).stat(path)
    except FileNotFoundError:
        return None


def _header(index: File) -> tuple[np.dtype[Any], int, int]:
    """Return the type of tokens, the number of sequences and the number of document bounds."""
    found = storage_of(index.path).read(index, 0, min(_HEADER.size, index.size))
    magic, version, kind, sequences, bounds = _HEADER.unpack(found.ljust(_HEADER.size, b"\0"))
    if (magic, version) != (_MAGIC, 1) or not 0 < kind < len(MEGATRON_TYPES):
        raise RecordError(f"{index.path}: not a Megatron index, or of a different version")
    size = index.size - _HEADER.size - 12 * sequences - 8 * bounds
    if size not in (0, sequences):  # an index with modes has a byte per sequence
        raise RecordError(
            f"{index.path}: it is cut, or of a different format: {sequences:,} sequences and "
            f"{bounds:,} bounds of documents don't take {index.size:,} bytes"
        )
    return np.dtype(MEGATRON_TYPES[kind]), sequences, bounds


@lru_cache(maxsize=256)
def _documents(file: File, part: TokenPart) -> NDArray[np.int64]:
    """Return the offsets of documents among the tokens of a file, and the end of the last."""
    index, dtype = part.megatron, part.dtype
    if index is None:
        raise ArgumentError(
            f"read_tokens: {file.path} doesn't store where documents end: pass length, the number "
            "of tokens per row"
        )
    _, sequences, bounds = _header(index)
    content = storage_of(index.path).read(index, _HEADER.size, index.size)
    lengths = np.frombuffer(content, "<i4", sequences).astype(np.int64)
    starts = np.frombuffer(content, "<i8", sequences, 4 * sequences)
    documents = np.frombuffer(content, "<i8", bounds, 12 * sequences)
    begins = np.concatenate([[0], np.cumsum(lengths)])
    is_rising = (lengths >= 0).all() and np.array_equal(begins[:-1] * dtype.itemsize, starts)
    if not is_rising or begins[-1] * dtype.itemsize != file.size:
        raise RecordError(f"{index.path}: its sequences don't fit {file.path}")
    ends = [*documents[:1], *documents[-1:]]
    if ends != [0, sequences] or (np.diff(documents) < 0).any():
        raise RecordError(
            f"{index.path}: its documents don't cover its {sequences:,} sequences: their bounds "
            f"must rise from 0 to that number, and are {documents}"
        )
    found: NDArray[np.int64] = begins[documents]
    return found


def megatron_index(dtype: np.dtype[Any], lengths: Sequence[int]) -> bytes:
    """Return a Megatron index for documents of these lengths, with one sequence each."""
    kind, size = MEGATRON_TYPES.index(dtype.str.lstrip("|")), len(lengths)
    starts = np.cumsum([0, *lengths], dtype="<i8")[:-1] * dtype.itemsize
    parts = [np.array(lengths, "<i4"), starts, np.arange(size + 1, dtype="<i8")]
    header = _HEADER.pack(_MAGIC, 1, kind, size, size + 1)
    return b"".join([header, *(part.tobytes() for part in parts)])


def numbers_check(value: Any) -> np.dtype[Any]:
    """Accept a type of numbers; return it as little endian."""
    try:
        found = np.dtype(value)
    except TypeError:
        found = np.dtype(object)
    if found.kind not in "iuf" or str(found).startswith(">"):
        raise Unfit("a type of little-endian numbers, such as 'uint16'")
    little: np.dtype[Any] = found.newbyteorder("<")
    return little


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise Unfit("a str")
    return value


def read_tokens(
    files: Any,
    *,
    length: int | None = None,
    stride: int | None = None,
    dtype: DTypeLike | None = None,
    offset: int = 0,
    name: str | None = None,
) -> TokenRows:
    """Read rows of tokens, by number: `length` tokens each, or documents.

    Supported files are plain numbers (`.bin`), Megatron's with an `.idx` next to them, `.npy`, and
    uncompressed `.npz`. With `dtype`, a `.npy` without NumPy's header, as OLMo writes it, is read
    as plain numbers. Rows are read-only arrays. No row spans two files: fewer than `length`
    tokens at the end of a file are dropped. An index must fit its file, byte for byte. The tokens
    have no checksum.

    See `Rows` for what all readers share: arguments, errors, state and memory.

    Args:
        length: Number of tokens per row. None for the documents of the `.idx`, and for the rows
            of two-dimensional arrays.
        stride: Number of tokens from the start of one row to the start of the next; by default
            `length`. With `length=1025, stride=1024` each row ends with the first token of the next
            row, as its last target.
        dtype: Type of plain numbers, little endian, such as "uint16". Other formats store theirs.
        offset: Number of bytes before plain numbers, such as 1024 in files of llm.c.
        name: Name of the array in an `.npz`, if there are several.

    Returns:
        The rows; `rows.lengths` is the number of tokens per row, for `plan_packing`.

    Raises:
        ArgumentError: If a file needs `length`, `dtype` or `name`, or its array has an unsupported
            shape.
        RecordError: If a file is cut, or an index doesn't fit its file.

    Memory:
        As in all readers, and 8 bytes per document for up to 256 files.

    >>> import lazyckpt as lz
    >>> import numpy as np
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     np.arange(10, dtype=np.uint16).tofile(f"{folder}/a.bin")
    ...     rows = lz.io.read_tokens(f"{folder}/a.bin", length=4, stride=3, dtype="uint16")
    ...     list(rows | lz.batch(2, collate=lz.stack))
    [array([[0, 1, 2, 3],
           [3, 4, 5, 6]], dtype=uint16), array([[6, 7, 8, 9]], dtype=uint16)]
    """
    size = checked("read_tokens", "length", length, optional(positive))
    step = checked("read_tokens", "stride", stride, optional(positive))
    kind = checked("read_tokens", "dtype", dtype, optional(numbers_check))
    passed = checked("read_tokens", "offset", offset, natural)
    key = checked("read_tokens", "name", name, optional(_text))
    if step is not None and size is None:
        raise ArgumentError(f"read_tokens: stride={step} needs length")
    listed = as_files(files, "read_tokens")
    parts = [_part(file, kind, passed, key) for file in listed]
    if size is not None:
        parts = [part._replace(length=size, stride=step or size) for part in parts]
    others = {"dtype": kind and kind.str, "offset": passed or None, "name": key}
    return TokenRows(listed, parts, {"length": size, "stride": step, **others})
