"""`read_files`: files as rows, each with its name and its bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lazyckpt.core.checks import checked, positive
from lazyckpt.io.files import Files, as_files
from lazyckpt.io.records import MAX_RECORD
from lazyckpt.io.rows import Rows
from lazyckpt.io.storage import storage_of


class _WholeFiles(Rows[dict[str, Any]]):
    def __init__(self, files: Files, max_record_bytes: int) -> None:
        self._most, self._named_from = max_record_bytes, len(files.root) + 1
        given = {} if max_record_bytes == MAX_RECORD else {"max_record_bytes": max_record_bytes}
        super().__init__("read_files", files, [1] * len(files), given)

    def read_rows(self, number: int, records: Sequence[int]) -> list[dict[str, Any]]:
        file = self.files[number]
        if file.size > self._most:
            reason = f"it has {file.size:,} bytes, and max_record_bytes is {self._most:,}"
            raise self.error(number, 0, reason)
        data = storage_of(file.path).read(file, 0, file.size)
        return [{"name": file.path[self._named_from :], "data": data} for _ in records]

    def span(self, number: int, record: int) -> tuple[int, int]:
        return 0, self.files[number].size


def read_files(files: Any, *, max_record_bytes: int = MAX_RECORD) -> Rows[dict[str, Any]]:
    """Whole files, by number, as dicts of a name and the bytes: images, sounds, documents.

    What is in them is `map`'s to decode; a compressed file is given as it is. A name is the path
    below the folder that all files are in.

    See `Rows` for what all readers share: arguments, errors, state and memory.

    Returns:
        The rows: `{"name": "cats/1.jpg", "data": b"..."}`.

    Raises:
        RecordError: A file is larger than `max_record_bytes`.

    Memory:
        One file at a time.

    >>> import lazyckpt as lz
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     for name in ("to", "be"):
    ...         _ = Path(folder, f"{name}.txt").write_text(name * 2)
    ...     list(lz.io.read_files(f"{folder}/*.txt"))
    [{'name': 'be.txt', 'data': b'bebe'}, {'name': 'to.txt', 'data': b'toto'}]
    """
    most = checked("read_files", "max_record_bytes", max_record_bytes, positive)
    return _WholeFiles(as_files(files, "read_files"), most)
