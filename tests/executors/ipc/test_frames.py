"""Frames over real pipes: what `Connection` writes is read, and the other way round."""

from __future__ import annotations

import os
import struct
import threading
from collections.abc import Iterator
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyckpt.executors.ipc import frames
from lazyckpt.executors.ipc.frames import read_frame, write_frame

End: TypeAlias = "Connection[Any, Any]"
PIPE = 1 << 20  # bytes, more than a pipe holds
sizes = st.integers(0, 40) | st.sampled_from([255, 256, (1 << 14) + 1, 1 << 16, PIPE])


@pytest.fixture
def ends() -> Iterator[tuple[End, End]]:
    ours, theirs = Pipe()
    with ours, theirs:
        yield ours, theirs


@given(st.lists(st.lists(sizes, max_size=3), max_size=4))
def test_any_frames_arrive(messages: list[list[int]]) -> None:
    parts = [[bytes([i % 256]) * n for i, n in enumerate(each, 1)] for each in messages]
    ours, theirs = Pipe()
    with ours, theirs:
        written: list[int] = []
        write = threading.Thread(
            target=lambda: written.extend(write_frame(theirs, each) for each in parts)
        )
        write.start()
        assert [bytes(read_frame(ours)) for _ in parts] == [b"".join(each) for each in parts]
        write.join()
    assert written == [sum(each) for each in messages]


def test_they_are_those_of_a_connection(ends: tuple[End, End]) -> None:
    ours, theirs = ends
    write_frame(theirs, [b"a", b"bc"])
    assert ours.recv_bytes() == b"abc"
    theirs.send_bytes(b"def")
    assert read_frame(ours) == b"def"


def test_long_heads(ends: tuple[End, End], monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = ends
    monkeypatch.setattr(frames, "_MOST", 2)  # in place of 2 GiB
    for frame in (b"ab", b"abc"):
        write_frame(theirs, [frame])
        assert read_frame(ours) == frame
    write_frame(theirs, [b"abc"])
    assert ours.recv_bytes() == b"abc"


@pytest.mark.parametrize("sent", [b"", b"\0", struct.pack("!i", 3), struct.pack("!i", 3) + b"ab"])
def test_part_of_a_frame_is_an_end(sent: bytes, ends: tuple[End, End]) -> None:
    ours, theirs = ends
    os.write(theirs.fileno(), sent)
    theirs.close()
    with pytest.raises(EOFError):
        read_frame(ours)
