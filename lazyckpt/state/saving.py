"""`save`, `load`: a state in a file, on disk or anywhere that fsspec reaches."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from itertools import count
from typing import Any, NamedTuple, Protocol

from lazyckpt.core.checks import Unfit, brief, checked, is_raised_here, natural
from lazyckpt.errors import ArgumentError, InvalidState, PipelineError
from lazyckpt.state.state import State

_LONGEST = (1 << 24) + 2  # bytes: one more than the longest state


class Running(Protocol):
    """An object that knows its own state: a run, a tracked run."""

    @property
    def state(self) -> State: ...


class _Place(NamedTuple):
    """A path, how files next to it are read and written, and how a user would name them."""

    path: str
    read: Callable[[str], bytes]
    write: Callable[[str, bytes], None]
    shown: Callable[[str], str] = str

    def previous(self, number: int) -> str:
        """Return the path of the previous state (1), or of the one before it (2), and so on."""
        return f"{self.path}.{number}"


def save(state: State | Running, path: str | os.PathLike[str], *, keep: int = 1) -> None:
    """Atomically write a state, or the state of a run, to a file.

    On a disk it writes the state to a temporary file next to the path, flushes it to the device,
    and renames it. If the process is killed or the power fails, the path has the old state or the
    new one. (If the folder itself can't be flushed, for lack of permission to read it, that may
    be the old state for some time after `save` has returned.) A kill in between can leave a
    `path.*.tmp`. The file keeps its permissions, or gets those of any new file. Several processes
    may save to one path; the last one wins. On an object store, a put is atomic as well. On other
    remote systems, an interrupted write may tear the file; `load` detects that.

    A torn file is never kept as a previous state, and displaces none.

    Args:
        state: The state to save, or a run to save its current state.
        path: A path, or any URL that fsspec knows, such as `s3://bucket/state.json`.
        keep: Number of previous states to keep: the last one as `path.1`, the one before it as
            `path.2`, and so on. Each save copies all of them.

    Raises:
        OSError: If the file system raises it; the old state still exists.
        PipelineError: For a URL, if fsspec is not installed.

    >>> import lazyckpt as lz
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> letters = lz.source(["a", "b", "c"])
    >>> with TemporaryDirectory() as folder:
    ...     lz.save(lz.state_at(letters, 1), Path(folder, "data.json"))
    ...     list(lz.run(letters, lz.load(Path(folder, "data.json"))))
    ['b', 'c']
    """
    keep = checked("save", "keep", keep, natural)
    found = state if isinstance(state, State) else getattr(state, "state", None)
    if not isinstance(found, State):
        raise ArgumentError(f"save: state must be a State or a Run, got {brief(state)}")
    place = _place("save", path)
    text = found.to_json().encode() + b"\n"
    _keep(place, text, keep)
    place.write(place.path, text)


def load(path: str | os.PathLike[str]) -> State:
    """Read a state written by `save`. Never executes code.

    Args:
        path: A path, or any URL that fsspec knows.

    Raises:
        InvalidState: If the file is torn, truncated or not a state. The message names it and the
            newest whole previous state. `load` doesn't fall back to that by itself, because it
            may not belong to the model saved with the newer one.
        FileNotFoundError: If there is no such file.
        PipelineError: For a URL, if fsspec is not installed.
    """
    place = _place("load", path)
    try:
        return _state(place, place.path)
    except InvalidState as error:
        raise InvalidState(f"{place.shown(place.path)}: {error}; {_remedy(place)}") from None


def _remedy(place: _Place) -> str:
    with suppress(OSError):  # there are no more
        for name in map(place.previous, count(1)):
            with suppress(InvalidState):
                items = _state(place, name).items
                name = place.shown(name)
                return f"the previous whole state, after {items:,} items, is lz.load({name!r})"
    return "there is no previous whole state"


def _keep(place: _Place, text: bytes, keep: int) -> None:
    """Copy each state to the path of the one before it, up to the first free path.

    So none of them is ever missing, and a torn one doesn't replace another.
    """
    if not keep or _whole(place, place.path) in (None, text):
        return
    free = next(n for n in count(1) if n == keep or _whole(place, place.previous(n)) is None)
    for number in range(free, 1, -1):
        place.write(place.previous(number), place.read(place.previous(number - 1)))
    place.write(place.previous(1), place.read(place.path))


def _state(place: _Place, name: str) -> State:
    content = place.read(name)
    if not content:
        raise InvalidState("the file is empty")
    return State.from_json(content.removesuffix(b"\n"))


def _whole(place: _Place, name: str) -> bytes | None:
    """Return the content of a file, if it is a whole state."""
    try:
        content = place.read(name)
        State.from_json(content.removesuffix(b"\n"))
    except (FileNotFoundError, InvalidState):
        return None
    return content


def _path(value: Any) -> str:
    try:
        found = os.fspath(value)
    except TypeError as error:
        if not is_raised_here(error):
            raise
        found = None
    if not isinstance(found, str):
        raise Unfit("a path or a URL, as a str or os.PathLike")
    return found


def _place(stage: str, path: str | os.PathLike[str]) -> _Place:
    name = checked(stage, "path", path, _path)
    if "://" not in name:
        return _Place(os.path.realpath(name), _read, write_file)  # follows links
    try:
        fsspec = import_module("fsspec")
    except ImportError:
        raise PipelineError(
            f'{stage}: the URL {brief(name)} needs fsspec: pip install "lazyckpt[fsspec]"'
        ) from None
    system, found = fsspec.core.url_to_fs(name)
    if type(system) is fsspec.get_filesystem_class("file"):
        return _Place(os.path.realpath(found), _read, write_file)

    def read(name: str) -> bytes:
        with system.open(name, "rb") as file:
            content: bytes = file.read(_LONGEST)
        return content

    return _Place(found, read, system.pipe_file, system.unstrip_protocol)


def _read(name: str) -> bytes:
    with open(name, "rb") as file:
        return file.read(_LONGEST)


def write_file(name: str, content: bytes) -> None:
    """Replace a file atomically, on this machine's disks."""
    beside = f"{name}.{os.urandom(8).hex()}.tmp"
    mode = None
    with suppress(FileNotFoundError):
        mode = os.stat(name).st_mode
        if not stat.S_ISREG(mode):
            raise OSError(f"{name} exists, and is not a regular file")
    try:
        with open(beside, "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if mode is not None:
            os.chmod(beside, stat.S_IMODE(mode))
        os.replace(beside, name)
    except BaseException as error:
        with suppress(FileNotFoundError):
            os.unlink(beside)
        if isinstance(error, FileNotFoundError):
            error.filename = os.path.dirname(name)  # the folder is missing
        raise
    _sync_folder(os.path.dirname(name))


def _sync_folder(name: str) -> None:
    """Make a rename durable, if the system can; without it, the file is still whole."""
    with suppress(OSError):  # no permission to read the folder, or not supported by the file system
        folder = os.open(name, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
