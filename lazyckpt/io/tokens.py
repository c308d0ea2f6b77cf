"""`read_tokens`: rows of tokens, out of files of nothing but numbers."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.lib import format as npy
from numpy.typing import DTypeLike, NDArray

from lazyckpt.core.checks import Unfit, checked, natural, optional, positive
from lazyckpt.errors import ArgumentError
from lazyckpt.io.files import Files, as_files
from lazyckpt.io.rows import RecordError, Rows, decoding
from lazyckpt.io.storage import File, storage_of
from lazyckpt.io.stored_file import StoredFile

MEGATRON_MAGIC = b"MMIDIDX\x00\x00"
_HEADER = 34  # bytes of an index of Megatron's, before what it says of sequences
_LLM_C, _LLM_C_MAGIC = 1024, 20240520  # bytes of a header of llm.c's, and its first number
MEGATRON_TYPES = ["", "u1", "i1", "<i2", "<i4", "<i8", "<f8", "<f4", "<u2"]


class TokenPart(NamedTuple):
    """Where numbers are in a file.

    - `dtype`: their type
    - `start`: the byte where the first one is
    - `size`: how many
    - `row`: how many are a row of its own, if it is an array of rows
    - `megatron`: the index beside it, if there is one
    """

    dtype: np.dtype[Any]
    start: int
    size: int
    row: int | None = None
    megatron: File | None = None


class _Documents(NamedTuple):
    """Where documents begin and end among the tokens of a file."""

    size: int
    bounds: NDArray[np.int64]


class TokenRows(Rows[NDArray[Any]]):
    """Rows of tokens as arrays: `length` of them from every `stride`-th on, or documents.

    Args:
        files: The files.
        parts: Where tokens are in each of them.
        length: As of `read_tokens`.
        stride: As of `read_tokens`.
        arguments: The reader's other arguments; None for those at their defaults.
    """

    def __init__(
        self,
        files: Files,
        parts: Sequence[TokenPart],
        length: int | None,
        stride: int | None,
        arguments: Mapping[str, Any],
    ) -> None:
        self.length, self.stride, self._parts = length, stride or length, parts
        counts = list(map(self._count, files, parts))
        given = {"length": length, "stride": stride, **arguments}
        given = {name: value for name, value in given.items() if value is not None}
        super().__init__("read_tokens", files, counts, given)
        self.sums = list(map(self._sum, files, parts))

    def _sum(self, file: File, part: TokenPart) -> int:
        """A checksum of what says where rows are in a file, and of what type."""
        found = zlib.crc32(part.dtype.str.encode())
        if self.length is not None or part.megatron is None:
            return found
        return zlib.crc32(_documents(file, part.megatron, part.dtype).bounds.tobytes(), found)

    def _count(self, file: File, part: TokenPart) -> int:
        if self.length is not None and self.stride is not None:
            return max(0, (part.size - self.length) // self.stride + 1)
        if part.megatron is not None:
            return _documents(file, part.megatron, part.dtype).size
        if part.row is not None:
            return part.size // part.row
        raise ArgumentError(
            f"read_tokens: {file.path} doesn't say where documents end: give length, the number "
            "of tokens in a row"
        )

    @property
    def lengths(self) -> NDArray[np.int64]:
        """How many tokens each row has, of shape `(n,)`, for `plan_packing`; no token is read."""
        return np.concatenate([np.empty(0, np.int64), *map(self._lengths, range(len(self.files)))])

    def _lengths(self, number: int) -> NDArray[np.int64]:
        part, count = self._parts[number], self._begins[number + 1] - self._begins[number]
        if self.length is None and part.megatron is not None:
            return np.diff(_documents(self.files[number], part.megatron, part.dtype).bounds)
        return np.full(count, part.row if self.length is None else self.length, np.int64)

    def read_rows(self, number: int, records: Sequence[int]) -> list[NDArray[Any]]:
        spans = [self.span(number, record) for record in records]
        file = self.files[number]
        found = storage_of(file.path).read_ranges(file, spans)
        return [np.frombuffer(content, self._parts[number].dtype) for content in found]

    def read_block(self, number: int, record: int, budget: int) -> list[NDArray[Any]]:
        first, end = self.span(number, record)
        left = self._begins[number + 1] - self._begins[number] - record
        count = max(1, min(budget // max(1, end - first), left))
        spans = [self.span(number, each) for each in range(record, record + count)]
        file, dtype = self.files[number], self._parts[number].dtype
        content = storage_of(file.path).read(file, first, max(stop for _, stop in spans))
        parts = [content[start - first : stop - first] for start, stop in spans]
        return [np.frombuffer(part, dtype) for part in parts]

    def span(self, number: int, record: int) -> tuple[int, int]:
        part = self._parts[number]
        if self.length is not None and self.stride is not None:
            first, size = record * self.stride, self.length
        elif part.megatron is not None:
            found = _documents(self.files[number], part.megatron, part.dtype)
            first, end = found.bounds[record : record + 2].tolist()
            size = end - first
        else:
            first, size = record * (part.row or 0), part.row or 0
        width = part.dtype.itemsize
        return part.start + first * width, part.start + (first + size) * width


def _part(file: File, dtype: np.dtype[Any] | None, offset: int, name: str | None) -> TokenPart:
    if file.path.endswith(".npy"):
        return _array(file, 0, StoredFile(file))
    if file.path.endswith(".npz"):
        return _member(file, name)
    index = _index_of(file)
    if index is not None and offset:
        raise ArgumentError(f"read_tokens: {index.path} says where tokens are; offset={offset} too")
    found = dtype if index is None else _index_header(index)[0]
    if found is None:
        raise ArgumentError(
            f"read_tokens: {file.path} doesn't say of what type its tokens are: "
            'give dtype="uint16"'
        )
    size = file.size - offset
    if size < 0 or size % found.itemsize:
        raise RecordError(f"{file.path}: {size:,} bytes are no whole number of {found.name}")
    if index is None and not offset and file.size >= _LLM_C:
        magic, _, count = np.frombuffer(storage_of(file.path).read(file, 0, 12), "<i4").tolist()
        if magic == _LLM_C_MAGIC and count * found.itemsize == file.size - _LLM_C:
            raise ArgumentError(
                f"read_tokens: {file.path} begins with a header of llm.c: give offset={_LLM_C}"
            )
    return TokenPart(found, offset, size // found.itemsize, None, index)


def _array(file: File, start: int, source: Any) -> TokenPart:
    """What the header of NumPy's format says, which begins at byte `start` of a file."""
    with decoding(file):
        version = npy.read_magic(source)
        read: Callable[[Any], Any] = npy.read_array_header_1_0
        if version != (1, 0):
            read = npy.read_array_header_2_0
        shape, is_fortran, dtype = read(source)
        begin = start + source.tell()
    if dtype.hasobject or len(shape) not in (1, 2) or (is_fortran and len(shape) == 2):
        raise ArgumentError(
            f"read_tokens: {file.path} must hold numbers in one dimension, or rows of them, "
            f"got shape={shape}, dtype={dtype}"
        )
    size = int(np.prod(shape))
    if begin + size * dtype.itemsize > file.size:
        raise RecordError(f"{file.path}: it is cut: {shape} of {dtype} don't fit into its bytes")
    return TokenPart(dtype, begin, size, int(shape[1]) if len(shape) == 2 else None)


def _member(file: File, name: str | None) -> TokenPart:
    """Where an array of an `.npz` is, which must not be compressed."""
    with decoding(file), zipfile.ZipFile(StoredFile(file)) as archive:
        found = {each.filename.removesuffix(".npy"): each for each in archive.infolist()}
    chosen = name if name is not None or len(found) != 1 else next(iter(found))
    if chosen not in found:
        raise ArgumentError(
            f"read_tokens: name must be that of an array in {file.path}, one of {[*found]}, "
            f"got name={name!r}"
        )
    info = found[chosen]
    if info.compress_type != zipfile.ZIP_STORED:
        raise ArgumentError(
            f"read_tokens: {chosen!r} in {file.path} is compressed: numpy.savez makes one that "
            "isn't"
        )
    source = StoredFile(file)
    with decoding(file):
        source.seek(info.header_offset + 26)
        extra = np.frombuffer(source.read(4), "<u2").sum()
        start = info.header_offset + 30 + int(extra)
        source.seek(start)
    return _array(file, start, io.BytesIO(source.read(1 << 16)))


def _index_of(file: File) -> File | None:
    """The index that Megatron has beside a file of tokens."""
    if not file.path.endswith(".bin"):
        return None
    path = f"{file.path.removesuffix('.bin')}.idx"
    try:
        return storage_of(path).stat(path)
    except FileNotFoundError:
        return None


def _index_header(index: File) -> tuple[np.dtype[Any], int, int]:
    """The type of tokens, and the numbers of sequences and of bounds of documents."""
    header = storage_of(index.path).read(index, 0, min(_HEADER, index.size))
    kind = header[17] if len(header) == _HEADER else 0
    is_known = header.startswith(MEGATRON_MAGIC) and header[9:17] == (1).to_bytes(8, "little")
    if not is_known or not 0 < kind < len(MEGATRON_TYPES):
        raise RecordError(f"{index.path}: no index of Megatron's, or of another version")
    sequences, documents = np.frombuffer(header, "<u8", 2, 18).tolist()
    if index.size < _HEADER + 12 * sequences + 8 * documents:
        raise RecordError(f"{index.path}: it is cut: {sequences:,} sequences don't fit into it")
    return np.dtype(MEGATRON_TYPES[kind]), sequences, documents


@lru_cache(maxsize=256)
def _documents(file: File, index: File, dtype: np.dtype[Any]) -> _Documents:
    _, sequences, bounds = _index_header(index)
    content = storage_of(index.path).read(index, _HEADER, index.size)
    lengths = np.frombuffer(content, "<i4", sequences).astype(np.int64)
    starts = np.frombuffer(content, "<i8", sequences, 4 * sequences)
    documents = np.frombuffer(content, "<i8", bounds, 12 * sequences)
    begins = np.concatenate([[0], np.cumsum(lengths)])
    is_rising = (lengths >= 0).all() and np.array_equal(begins[:-1] * dtype.itemsize, starts)
    if not is_rising or begins[-1] * dtype.itemsize > file.size:
        raise RecordError(f"{index.path}: its sequences aren't those of {file.path}")
    ends = [*documents[:1], *documents[-1:]]
    if ends != [0, sequences] or (np.diff(documents) < 0).any():
        raise RecordError(
            f"{index.path}: its documents don't hold its {sequences:,} sequences: their bounds "
            f"must rise from 0 to that, and are {documents}"
        )
    return _Documents(max(0, bounds - 1), begins[documents])


def numbers_check(value: Any) -> np.dtype[Any]:
    """Checks a type of numbers; it is then little endian."""
    try:
        found = np.dtype(value)
    except TypeError:
        found = np.dtype(object)
    if found.kind not in "iuf":
        raise Unfit("a type of numbers, such as 'uint16'")
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
    """Rows of tokens, by number: of `length` each, or documents.

    It reads files of plain numbers (`.bin`), those of Megatron with an `.idx` beside them,
    `.npy`, and `.npz` that isn't compressed. Rows are arrays that can't be written to; none
    reaches over the end of a file, where fewer than `length` tokens are left out.

    See `Rows` for what all readers share: arguments, errors, state and memory.

    Args:
        length: How many tokens a row has. None for documents as the `.idx` has them, and for
            the rows of arrays in two dimensions.
        stride: How many tokens there are from the beginning of one row to that of the next;
            by default `length`. With `length=1025, stride=1024` each row has the first
            token of the next one too, as its last target.
        dtype: The type of plain numbers, little endian, such as "uint16". Others say theirs.
        offset: How many bytes there are before plain numbers, such as 1024 in files of llm.c.
        name: The array's in an `.npz`, if there are several.

    Returns:
        The rows; `rows.lengths` is how many tokens each has, for `plan_packing`.

    Raises:
        ArgumentError: A file needs `length`, `dtype` or `name`, or its array has another shape.
        RecordError: A file is cut, or an index is not that of its file.

    Memory:
        As of all readers, and 8 bytes for each document, of up to 256 files.

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
        raise ArgumentError(f"read_tokens: stride={step} is given, and no length")
    listed = as_files(files, "read_tokens")
    parts = [_part(file, kind, passed, key) for file in listed]
    others = {"dtype": kind and kind.str, "offset": passed or None, "name": key}
    return TokenRows(listed, parts, size, step, others)
