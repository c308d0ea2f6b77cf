"""Objects pickled once for many processes, in memory that they share."""

from __future__ import annotations

import os
import pickle
import struct
import threading
from collections.abc import Callable
from mmap import ACCESS_COPY, mmap
from typing import IO, Any

from lazyckpt.executors.ipc.pickler import LargeBuffers
from lazyckpt.executors.ipc.shared_memory import fill, room, split, unnamed_file
from lazyckpt.executors.ipc.surroundings import Surroundings, surroundings

_TAKING = 0  # a user during `take`, so that no signal handler frees the memory


class SharedPickle:
    """An object pickled once for many processes, in memory that they share.

    Its large arrays lie in the shared memory too. A process that writes into an array gets its
    own copy of the pages. In front are the surroundings of this process.

    Attributes:
        file: The memory, as a file to map.
    """

    def __init__(self, frame: bytes, large: LargeBuffers) -> None:
        parts = [pickle.dumps(surroundings(frame)), frame, *large]
        head = struct.pack(f"={len(parts) + 1}q", len(parts), *map(len, parts))
        self.file = unnamed_file(room(map(len, [head, *parts])))
        with mmap(self.file.fileno(), 0) as memory:
            fill(memory, [head, *parts])


class PickledOnce:
    """A `SharedPickle` of several users, which lives as long as one of them needs it."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._users: set[int] = set()
        self._pickled: SharedPickle | None = None

    def take(self, user: int, make: Callable[[], SharedPickle]) -> IO[bytes]:
        """Return the memory as a file, which the caller closes; it is made for the first user."""
        with self._lock:
            self._users |= {user, _TAKING}
            try:
                found = self._pickled = self._pickled or make()
                return os.fdopen(os.dup(found.file.fileno()), "rb")
            finally:
                self.release(_TAKING)

    def release(self, user: int) -> None:
        """Free the memory once no user is left."""
        with self._lock:
            self._users.discard(user)
            if not self._users:
                self.close()

    def close(self) -> None:
        """Free the memory; in a forked process, in which the lock may be taken forever."""
        if self._pickled is not None:
            self._pickled.file.close()
            self._pickled = None


def shared_surroundings(file: int) -> Surroundings:
    """Return the surroundings in front of a `SharedPickle`, given its file descriptor."""
    found: Surroundings = pickle.loads(_shared_parts(file)[0])
    return found


def shared_content(file: int) -> Any:
    """Return the object in a `SharedPickle`, given its file descriptor."""
    _, frame, *buffers = _shared_parts(file)
    return pickle.loads(frame, buffers=buffers)


def _shared_parts(file: int) -> list[memoryview]:
    view = memoryview(mmap(file, 0, access=ACCESS_COPY))
    (count,) = struct.unpack_from("=q", view)
    sizes = struct.unpack_from(f"={count}q", view, 8)
    return split(view, sizes, 8 + 8 * count)
