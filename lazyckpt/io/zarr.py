"""`read_zarr`: rows of an array of Zarr by number, chunks kept decoded."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lazyckpt.core.checks import checked, natural, optional, positive
from lazyckpt.errors import ArgumentError
from lazyckpt.io.files import Files
from lazyckpt.io.groups import CACHE_BYTES
from lazyckpt.io.locks import ForkLock
from lazyckpt.io.rows import RecordError, Rows
from lazyckpt.io.storage import File, changed, optional_module, storage_of

_NAMES = ("zarr.json", ".zarray")  # what describes an array, of version 3 and 2


def _module() -> Any:
    return optional_module("zarr", "zarr", "read_zarr")


@lru_cache(maxsize=64)
def _opened(file: File) -> Any:
    now = storage_of(file.path).stat(file.path)
    if now != file:
        raise changed(file, now)
    folder = file.path.rpartition("/")[0]
    try:
        return _module().open_array(folder, mode="r")
    except Exception as error:  # of what it makes of damaged JSON
        raise RecordError(f"{folder}: no array of zarr: {error!r}") from error


class ZarrRows(Rows[NDArray[Any]]):
    """Rows of an array as arrays: along its first axis, or of `length` numbers each.

    Args:
        file: What describes the array.
        length: As of `read_zarr`.
        stride: As of `read_zarr`.
        cache_bytes: As of `read_zarr`.
    """

    def __init__(
        self, file: File, length: int | None, stride: int | None, cache_bytes: int
    ) -> None:
        array = _opened(file)
        if (length is None and array.ndim < 2) or (length is not None and array.ndim != 1):
            raise ArgumentError(
                "read_zarr: length must be given for an array in one dimension, and for no "
                f"other, got length={length}, shape={array.shape}"
            )
        self.width, self.stride = length or 1, stride or length or 1
        self._chunk, self._size = int(array.chunks[0]), int(array.shape[0])
        self._is_flat, self._cache_bytes = length is not None, cache_bytes
        count = max(0, (self._size - self.width) // self.stride + 1)
        self._renew()
        given = {"length": length, "stride": stride}
        arguments = {name: value for name, value in given.items() if value is not None}
        super().__init__("read_zarr", Files([file]), [count], arguments)

    def _renew(self) -> None:
        self._kept: OrderedDict[int, NDArray[Any]] = OrderedDict()
        self._lock = ForkLock()

    @property
    def block_starts(self) -> NDArray[np.int64]:
        """The first row that begins in each chunk."""
        found = np.unique(-(-np.arange(0, self._size, self._chunk) // self.stride))
        return found[found < len(self)]

    def read_rows(self, number: int, records: Sequence[int]) -> list[NDArray[Any]]:
        return [self._row(int(record)) for record in records]

    def span(self, number: int, record: int) -> tuple[int, int]:
        return 0, self.files[number].size  # chunks are files of their own

    def _row(self, record: int) -> NDArray[Any]:
        start = record * self.stride
        stop = start + self.width
        first, last = start // self._chunk, (stop - 1) // self._chunk
        try:
            blocks = [self._block(number) for number in range(first, last + 1)]
        except Exception as error:  # of each codec
            raise self.error(0, record, error) from error
        if not self._is_flat:
            return np.array(blocks[0][start - first * self._chunk])
        parts = [
            block[max(0, start - number * self._chunk) : stop - number * self._chunk]
            for number, block in enumerate(blocks, first)
        ]
        return np.concatenate(parts)

    def _block(self, number: int) -> NDArray[Any]:
        """The rows of one chunk, or of several beside one another."""
        with self._lock:
            if (found := self._kept.get(number)) is not None:
                self._kept.move_to_end(number)
                return found
        begin = number * self._chunk
        found = np.asarray(_opened(self.files[0])[begin : begin + self._chunk])
        with self._lock:
            self._kept[number] = found
            while sum(each.nbytes for each in self._kept.values()) > self._cache_bytes:
                if len(self._kept) == 1:
                    break
                self._kept.popitem(last=False)
        return found

    def __getstate__(self) -> dict[str, Any]:
        return {name: each for name, each in vars(self).items() if name not in ("_kept", "_lock")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._renew()


def read_zarr(
    array: str | os.PathLike[str],
    *,
    length: int | None = None,
    stride: int | None = None,
    cache_bytes: int = CACHE_BYTES,
) -> ZarrRows:
    """Rows of an array of Zarr, by number: along its first axis, or of `length` tokens each.

    Chunks are decoded as a whole and kept, the last used ones: in random order by
    `local_shuffle`, which decodes each once, rather than by `shuffle`. A chunk that was never
    written is made of the array's fill value, as Zarr has it.

    Args:
        array: A folder or URL of an array, of Zarr's version 2 or 3: of one in a group its
            own, `data.zarr/tokens`.
        length: How many tokens a row has, of an array in one dimension; None for the rows of
            one in several.
        stride: How many tokens there are from the beginning of one row to that of the next;
            by default `length`.
        cache_bytes: How many bytes of decoded chunks are kept, in each process; the last one in
            any case.

    Returns:
        The rows, data for `source` and for `|`.

    Raises:
        ArgumentError: The array has one dimension and no `length` is given, or the other way
            round.
        FileNotFoundError: There is no array.
        RecordError: What describes the array, or a chunk, is damaged.
        SourceChanged: When an array is opened that was resized since.
        PipelineError: zarr is missing.

    State:
        The epoch and a count of rows; a digest of what describes the array. A chunk that
        changed is not noticed.

    Resume:
        Decodes one chunk again; with `local_shuffle`, up to a window of them.

    Random access:
        Yes.

    Rank-free:
        Yes.

    Memory:
        `cache_bytes` of decoded chunks, or one of them if that is larger, in each process.

    >>> import lazyckpt as lz
    >>> import numpy as np
    >>> import zarr
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     tokens = zarr.create_array(f"{folder}/a.zarr", shape=10, chunks=4, dtype="uint16")
    ...     tokens[:] = np.arange(10)
    ...     [row.tolist() for row in lz.io.read_zarr(f"{folder}/a.zarr", length=4, stride=3)]
    [[0, 1, 2, 3], [3, 4, 5, 6], [6, 7, 8, 9]]
    """
    _module()
    size = checked("read_zarr", "length", length, optional(positive))
    step = checked("read_zarr", "stride", stride, optional(positive))
    cache = checked("read_zarr", "cache_bytes", cache_bytes, natural)
    if step is not None and size is None:
        raise ArgumentError(f"read_zarr: stride={step} is given, and no length")
    return ZarrRows(_described(os.fspath(array).rstrip("/")), size, step, cache)


def _described(folder: str) -> File:
    """What describes an array."""
    for name in _NAMES:
        try:
            return storage_of(folder).stat(f"{folder}/{name}")
        except (FileNotFoundError, NotADirectoryError):
            continue
    raise FileNotFoundError(f"{folder}: no array of zarr, which has {' or '.join(_NAMES)}")
